#include "shared/generation/layout_speeds.h"

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"

namespace plimsoll {
namespace {

const std::vector<Setting> kHere = {{"cpu", "here", ""}, {"model", "abc", ""}};

GenerationRecord record_of(std::int64_t number, std::int64_t dp, double speed,
                           const OptionSet& options = {}) {
  MemoryPlan plan;
  plan.dp = dp;
  GenerationRecord record;
  record.number = number;
  record.options = option_set_to_json(options);
  record.plan = memory_plan_to_json(plan);
  record.environment = kHere;
  record.tokens_per_second = speed;
  record.speed_requests = 16;
  return record;
}

std::vector<LayoutSpeed> speeds(std::vector<GenerationRecord> records) {
  OptionSet open;
  open.values.tp = open.values.dp = 0;
  return layout_speeds({.records = std::move(records), .damaged = {}, .last_number = 9},
                       {kHere, open});
}

TEST(LayoutSpeeds, AreOfLaunchesThatDifferInLayoutAlone) {
  const std::vector<LayoutSpeed> found = speeds({record_of(3, 1, 400), record_of(4, 2, 500)});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].dp, 2);
  EXPECT_EQ(found[1].requests, 16);
  EXPECT_EQ(found[1].tokens_per_second, 500);
  EXPECT_EQ(found[1].from, "generation 4");
}

TEST(LayoutSpeeds, AnotherMachineOrOtherThreadsSayNothing) {
  GenerationRecord elsewhere = record_of(3, 1, 400);
  elsewhere.environment[0].value = "there";
  OptionSet threads;
  threads.values.threads = 1;
  EXPECT_TRUE(speeds({elsewhere, record_of(4, 2, 500, threads)}).empty());
}

TEST(LayoutSpeeds, ALaunchWithADraftSaysNothingOfOneWithout) {
  OptionSet draft;
  draft.values.draft_model = "/models/draft.gguf";
  EXPECT_TRUE(speeds({record_of(3, 1, 400, draft)}).empty());
}

TEST(LayoutSpeeds, ALaunchThatNobodyUsedSaysNothing) {
  GenerationRecord older = record_of(4, 2, 500);
  older.speed_requests = 0;
  EXPECT_TRUE(speeds({record_of(3, 1, 0), older}).empty());
}

}  // namespace
}  // namespace plimsoll
