#include "tools/cli/plan_bar.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

RankPlan rank_of(Bytes budget) {
  RankPlan rank;
  rank.device = 0;
  rank.device_name = "GPU <1>";
  rank.device_total = budget;
  rank.budget = budget;
  rank.rows = {{Term::context, 5 * kGiB, "", Trust::assumed},
               {Term::weights, 50 * kGiB, "", Trust::computed},
               {Term::graphs, 10 * kMiB, "", Trust::assumed},
               {Term::kv, 25 * kGiB, "", Trust::computed}};
  return rank;
}

TEST(PlanBar, CellsAreToScaleAndFillTheBar) {
  const std::vector<BarPart> parts = bar_parts(rank_of(100 * kGiB), 100);
  std::int64_t cells = 0;
  for (const BarPart& part : parts) {
    cells += part.cells;
    if (part.name == "weights") {
      EXPECT_EQ(part.cells, 50);
    }
    if (part.name == "graphs") {
      EXPECT_EQ(part.cells, 0);  // a hundredth of a cell: legend only
    }
    if (part.name == "kv") {
      EXPECT_EQ(part.cells, 25);
    }
    if (part.is_free) {
      EXPECT_EQ(part.cells, 20);
    }
  }
  EXPECT_EQ(cells, 100);
}

TEST(PlanBar, GoesOnBeyondABudgetThatIsTooSmallButNotForEver) {
  const auto cells = [](Bytes budget) {
    std::int64_t sum = 0;
    for (const BarPart& part : bar_parts(rank_of(budget), 64)) sum += part.cells;
    return sum;
  };
  EXPECT_GT(cells(70 * kGiB), 64);
  EXPECT_EQ(cells(kGiB), 128);
  EXPECT_EQ(cells(0), 0);
}

TEST(PlanBar, TheLegendHasEveryPartWithItsBytes) {
  const RankPlan rank = rank_of(100 * kGiB);
  const std::string text = plan_bar({&rank, {&rank}}, {.cells = 40});
  for (const char* part :
       {"weights 50.00 GiB", "kv 25.00 GiB", "graphs 10.0 MiB", "free 19.99 GiB", "▏ 100.00 GiB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("\033["), std::string::npos);
  EXPECT_NE(plan_bar({&rank, {&rank}}, {.cells = 40, .has_colour = true}).find("\033[38;5;33m"),
            std::string::npos);
  const RankPlan small = rank_of(70 * kGiB);
  EXPECT_NE(plan_bar({&small, {&small}}, {}).find("10.01 GiB missing of 80.01 GiB"),
            std::string::npos);
}

TEST(PlanBar, TheImageIsEscapedAndHasABarOfEachKind) {
  MemoryPlan plan;
  plan.devices = "cuda";
  plan.ranks = {rank_of(100 * kGiB), rank_of(90 * kGiB)};
  plan.ranks[1].rank = 1;
  for (RankPlan& rank : plan.ranks) rank.device_name += "\x1b[2J";
  const std::string svg = plan_svg(plan);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_NE(svg.find("GPU &lt;1&gt;\\x1b[2J"), std::string::npos) << "XML has no such characters";
  EXPECT_NE(svg.find("rank 0.1: "), std::string::npos);
  EXPECT_NE(svg.find("<title>kv 25.00 GiB</title>"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
