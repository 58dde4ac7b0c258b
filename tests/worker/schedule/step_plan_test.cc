#include "worker/schedule/step_plan.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const StepLimits kLimits{.rows_max = 64,
                         .sequences_max = 8,
                         .logit_rows_max = 16,
                         .kv_blocks = 20,
                         .table_blocks_max = 20};

StepPlan two_sequences() {
  StepPlan plan;
  plan.ids = {5, 6, 7, 8};
  plan.sequences = {{.row = 0, .tokens = 3, .position = 31, .blocks_begin = 0, .blocks_count = 2},
                    {.row = 3, .tokens = 1, .position = 0, .blocks_begin = 2, .blocks_count = 1}};
  plan.blocks = {4, 19, 0};
  plan.logit_rows = {2, 3};
  return plan;
}

TEST(StepPlan, SurvivesTheRing) {
  std::vector<std::byte> bytes;
  encode_step(StepKind::run, two_sequences(), bytes);
  EXPECT_LE(static_cast<Bytes>(bytes.size()), step_bytes_max(kLimits));
  StepPlan plan = make_step_plan(kLimits);
  const auto kind = decode_step(bytes, kLimits, plan);
  ASSERT_TRUE(kind) << kind.error().message;
  EXPECT_EQ(*kind, StepKind::run);
  EXPECT_EQ(plan, two_sequences());
}

TEST(StepPlan, AStopIsEmpty) {
  std::vector<std::byte> bytes;
  encode_step(StepKind::stop, StepPlan{}, bytes);
  StepPlan plan = two_sequences();
  const auto kind = decode_step(bytes, kLimits, plan);
  ASSERT_TRUE(kind);
  EXPECT_EQ(*kind, StepKind::stop);
  EXPECT_TRUE(plan.empty());
}

TEST(StepPlan, TheLongestEncodingIsExact) {
  StepPlan plan;
  plan.ids.resize(static_cast<std::size_t>(kLimits.rows_max));
  plan.sequences.resize(static_cast<std::size_t>(kLimits.sequences_max));
  plan.blocks.resize(static_cast<std::size_t>(kLimits.kv_blocks));
  plan.logit_rows.resize(static_cast<std::size_t>(kLimits.logit_rows_max));
  std::vector<std::byte> bytes;
  encode_step(StepKind::run, plan, bytes);
  EXPECT_EQ(static_cast<Bytes>(bytes.size()), step_bytes_max(kLimits));
}

TEST(StepPlan, RefusesWhatContradictsItself) {
  const auto refused = [](auto&& damage) {
    StepPlan plan = two_sequences();
    damage(plan);
    const Status status = check_step(plan, kLimits);
    return !status && status.error().code == Code::internal;
  };
  EXPECT_FALSE(refused([](StepPlan&) {}));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.blocks[1] = 20; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.sequences[0].blocks_count = 1; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.sequences[1].row = 2; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.sequences[1].tokens = 2; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.sequences.pop_back(); }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.logit_rows = {3, 2}; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.logit_rows = {4}; }));
  EXPECT_TRUE(refused([](StepPlan& plan) { plan.sequences[0].blocks_begin = -1; }));
}

TEST(StepPlan, NoDamagedBytesAreReadOutOfBounds) {
  std::vector<std::byte> good;
  encode_step(StepKind::run, two_sequences(), good);
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = good;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    StepPlan plan;
    const auto kind = decode_step(bytes, kLimits, plan);
    if (kind) {
      EXPECT_TRUE(check_step(plan, kLimits));
    }
  }
}

}  // namespace
}  // namespace plimsoll
