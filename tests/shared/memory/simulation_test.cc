#include "shared/memory/simulation.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::string mistake(std::string_view text) {
  const Result<Simulation> simulation = parse_simulation(text);
  if (simulation) return "";
  EXPECT_EQ(simulation.error().code, Code::invalid);
  return simulation.error().message;
}

TEST(Simulation, ReadsCostsWithTheirTimeAndRanks) {
  const Result<Simulation> simulation = parse_simulation(R"({
    "load_time": "3s", "step_time": "5ms",
    "costs": [{"term": "context", "bytes": "900MiB"},
              {"term": "neighbour", "bytes": 1073741824, "when": "loading", "ranks": [3]},
              {"term": "graphs", "bytes": "2GiB", "when": "first step"}]})");
  ASSERT_TRUE(simulation) << simulation.error().message;
  EXPECT_EQ(simulation->load_time, seconds(3));
  EXPECT_EQ(simulation->step_time, milliseconds(5));
  ASSERT_EQ(simulation->costs.size(), 3U);
  EXPECT_EQ(simulation->costs[0].term, "context");
  EXPECT_EQ(simulation->costs[0].bytes, 900 * kMiB);
  EXPECT_EQ(simulation->costs[0].phase, SimulatedPhase::start);
  EXPECT_EQ(simulation->costs[1].phase, SimulatedPhase::loading);
  EXPECT_EQ(simulation->costs[2].phase, SimulatedPhase::first_step);
  EXPECT_EQ(simulation->costs_of(0).size(), 2U);
  EXPECT_EQ(simulation->costs_of(3).size(), 3U);
}

TEST(Simulation, NamesTheMistake) {
  EXPECT_NE(mistake("[]"), "");
  EXPECT_NE(mistake(R"({"cost": []})").find("'cost'"), std::string::npos);
  EXPECT_NE(mistake(R"({"load_time": 3})").find("load_time: a duration"), std::string::npos);
  EXPECT_EQ(mistake(R"({"costs": [{"term": "context"}]})"), "costs[0] needs a term and its bytes");
  EXPECT_NE(mistake(R"({"costs": [{"term": "a", "bytes": "1GiB", "at": 1}]})").find("'at'"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"costs": [{"term": "a", "bytes": -1}]})").find("a size"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"costs": [{"term": "a", "bytes": 1, "when": "later"}]})").find("when is"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"costs": [{"term": "a", "bytes": 1, "ranks": [-1]}]})").find("ranks is"),
            std::string::npos);
  EXPECT_NE(mistake(R"({"costs": [{"term": "kv", "bytes": 1}]})").find("kv takes"),
            std::string::npos);
}

TEST(Simulation, NoFileIsNoCost) {
  const Result<Simulation> none = read_simulation("");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->costs.empty());
  const Result<Simulation> missing = read_simulation("/nowhere/simulation.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
}

}  // namespace
}  // namespace plimsoll
