#include "shared/generation/plan_outcome.h"

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

// A launch of two ranks; rank 1's process took two MiB more than planned, and a term of its own.
GenerationRecord launched(std::int64_t number, const OptionSet& options) {
  const Result<MemoryPlan> plan =
      plan_memory(test_machine(16 * kGiB), make_llama_spec(smollm2_shape()), options);
  EXPECT_TRUE(plan && !plan->refusal);
  GenerationRecord record;
  record.number = number;
  record.outcome = Outcome::stopped;
  record.options = option_set_to_json(options);
  record.plan = memory_plan_to_json(*plan);
  for (const RankPlan& rank : plan->ranks) {
    Json bytes = Json::object();
    for (const PlanRow& row : rank.rows) {
      if (row.term == Term::kv) continue;
      const bool is_more = row.term == Term::process && rank.rank == 1;
      bytes.set(term_name(row.term), row.bytes + (is_more ? 2 * kMiB : 0));
    }
    if (rank.rank == 1) bytes.set("hidden", kMiB);
    record.measured.push(
        Json::object({{"replica", 0}, {"rank", rank.rank}, {"bytes", std::move(bytes)}}));
  }
  return record;
}

TEST(PlanOutcome, NamesTheRankAndTheTermThatWereMostOff) {
  const std::optional<PlanOutcome> outcome = plan_outcome(launched(7, test_options({"--tp=2"})));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->generation, 7);
  EXPECT_EQ(outcome->rank, "0.1");
  EXPECT_EQ(outcome->measured - outcome->planned, 3 * kMiB);
  EXPECT_EQ(outcome->term, "process");
  EXPECT_EQ(outcome->term_measured - outcome->term_planned, 3 * kMiB);
  const std::string line = plan_outcome_line(*outcome);
  EXPECT_NE(line.find("rank 0.1 planned"), std::string::npos) << line;
  EXPECT_NE(line.find("most off: process"), std::string::npos) << line;
  EXPECT_EQ(plan_outcome_json(*outcome).find("measured")->as_int(), outcome->measured);
}

TEST(PlanOutcome, ALaunchThatMeasuredNothingHasNone) {
  GenerationRecord record = launched(1, test_options({"--tp=2"}));
  record.measured = Json::array();
  EXPECT_FALSE(plan_outcome(record));
  record.measured.push(Json::object({{"replica", 0}, {"rank", 0}, {"bytes", Json()}}));
  EXPECT_FALSE(plan_outcome(record));
  record = launched(1, test_options({"--tp=2"}));
  record.plan = Json();
  EXPECT_FALSE(plan_outcome(record));
}

TEST(PlanOutcome, EarlierLaunchesOfTheSameModelAndLayoutComeNewestFirst) {
  Generations all;
  all.records = {launched(1, test_options({"--tp=2"})), launched(2, test_options({"--tp=3"})),
                 launched(3, test_options({"--tp=2", "--max-running-requests=4"}))};
  const auto found = earlier_outcomes(all, test_options({"--tp=2"}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].generation, 3);
  EXPECT_EQ(found[1].generation, 1);
}

}  // namespace
}  // namespace plimsoll
