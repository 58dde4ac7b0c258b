#include "daemon/memory_status.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr Bytes kBlock = 10;

MemoryPlan small_plan() {
  MemoryPlan plan;
  plan.decisions.kv_blocks = 100;
  RankPlan rank;
  rank.rows = {{Term::weights, 500, "", Trust::computed},
               {Term::process, 50, "", Trust::assumed},
               {Term::kv, 100 * kBlock, "", Trust::computed}};
  plan.ranks = {rank};
  return plan;
}

TEST(MemoryStatus, BeforeLoadingThereIsThePlanAlone) {
  const MemoryPlan plan = small_plan();
  const Json json =
      rank_memory_json({.plan = plan, .rank = plan.ranks[0], .worker = Worker{}, .kv_blocks = 0});
  EXPECT_EQ(json.find("planned")->as_int(), 550);
  EXPECT_TRUE(json.find("measured")->is_null());
  ASSERT_EQ(json.find("rows")->as_array().size(), 2U);
  EXPECT_TRUE(json.find("rows")->as_array()[0].find("measured")->is_null());
  EXPECT_EQ(json.find("kv")->find("planned")->as_int(), 1000);
  EXPECT_EQ(json.find("kv")->find("committed")->as_int(), 0);
}

TEST(MemoryStatus, EachTermStandsBesideWhatWasMeasuredAndHiddenOnesFollow) {
  const MemoryPlan plan = small_plan();
  Worker worker;
  worker.measured = Measured{};
  worker.measured->terms = {{"weights", 510}, {"context", 7}};
  worker.measured->source = "PSS";
  worker.measured->resident = 517;
  worker.kv_blocks_touched = 3;
  const Json json =
      rank_memory_json({.plan = plan, .rank = plan.ranks[0], .worker = worker, .kv_blocks = 80});
  EXPECT_EQ(json.find("measured")->as_int(), 517);
  EXPECT_EQ(json.find("source")->as_string(), "PSS");
  const auto& rows = json.find("rows")->as_array();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].find("measured")->as_int(), 510);
  EXPECT_TRUE(rows[1].find("measured")->is_null()) << "not made yet";
  EXPECT_EQ(rows[2].find("term")->as_string(), "context");
  EXPECT_EQ(rows[2].find("planned")->as_int(), 0);
  EXPECT_EQ(json.find("kv")->find("committed")->as_int(), 800);
  EXPECT_EQ(json.find("kv")->find("touched")->as_int(), 30);
  EXPECT_TRUE(json.find("free")->is_null());
}

TEST(MemoryStatus, DriftsSayTermNumbersAndRanks) {
  const Json json = drifts_json({{"context", Trust::assumed, 5, 9, 2, {"0.0", "0.1"}}});
  ASSERT_EQ(json.as_array().size(), 1U);
  const Json& drift = json.as_array()[0];
  EXPECT_EQ(drift.find("term")->as_string(), "context");
  EXPECT_EQ(drift.find("measured")->as_int(), 9);
  EXPECT_EQ(drift.find("ranks")->as_array().size(), 2U);
}

TEST(MemoryStatus, WhatWasLoweredIsSaidInOneLine) {
  LaunchPlan plan;
  plan.memory.kv.bytes = 10 * kGiB;
  plan.kv_blocks = 1000;
  plan.context_length = 262'144;
  plan.memory.decisions.context_length_wanted = 262'144;
  EXPECT_EQ(lowered_line(plan, 0), "");
  EXPECT_EQ(lowered_line(plan, 1000), "");
  EXPECT_EQ(lowered_line(plan, 60),
            "KV of a rank is 614.4 MiB of the 10.00 GiB that were planned: what memory allows");
  plan.context_length = 7648;
  EXPECT_EQ(lowered_line(plan, 1000), "the context is 7,648 of 262,144 tokens: what memory allows");
}

}  // namespace
}  // namespace plimsoll
