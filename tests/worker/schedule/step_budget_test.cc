#include "worker/schedule/step_budget.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

StepBudget adaptive(int step_ms) {
  return StepBudget(
      {.chunk_max = std::nullopt, .rows_max = 2048, .step_time_max = milliseconds(step_ms)});
}

TEST(StepBudget, AChunkSizeIsABoundBelowWhichTheStepTimeStillHolds) {
  StepBudget budget({.chunk_max = 512, .rows_max = 2048, .step_time_max = milliseconds(250)});
  EXPECT_LE(budget.rows(), 512);
  budget.observe(512, 0, milliseconds(512));
  EXPECT_EQ(budget.rows(), 200);
  budget.observe(200, 0, milliseconds(2));
  EXPECT_EQ(budget.rows(), 512);
}

TEST(StepBudget, AChunkSizeBelowTheLeastIsKept) {
  StepBudget budget({.chunk_max = 4, .rows_max = 2048, .step_time_max = milliseconds(250)});
  EXPECT_EQ(budget.rows(), 4);
}

TEST(StepBudget, SettlesBelowTheStepTime) {
  StepBudget budget = adaptive(250);
  const auto took = [](Tokens rows) { return std::chrono::microseconds(4000 + 1500 * rows); };
  Duration longest{};
  for (int step = 0; step < 20; ++step) {
    const Tokens rows = budget.rows();
    longest = std::max<Duration>(longest, took(rows));
    budget.observe(rows - rows / 10, rows / 10, took(rows));
  }
  EXPECT_LE(longest, milliseconds(250));
  EXPECT_GE(took(budget.rows()), milliseconds(180));
}

TEST(StepBudget, BelievesAnOverrunAndABetterTimeAtOnce) {
  StepBudget budget = adaptive(200);
  for (int step = 0; step < 10; ++step) budget.observe(100, 0, milliseconds(100));
  EXPECT_EQ(budget.rows(), 160);
  budget.observe(160, 0, milliseconds(320));
  EXPECT_EQ(budget.rows(), 80);
  budget.observe(60, 20, milliseconds(80));
  EXPECT_EQ(budget.rows(), 160);
}

TEST(StepBudget, IgnoresStepsThatOnlyDecode) {
  StepBudget budget = adaptive(200);
  budget.observe(100, 0, milliseconds(100));
  budget.observe(1, 40, milliseconds(50));
  EXPECT_EQ(budget.rows(), 160);
}

TEST(StepBudget, KeepsWithinThePlanAndAboveTheLeast) {
  StepBudget budget = adaptive(200);
  budget.observe(1000, 0, std::chrono::microseconds(1));
  EXPECT_EQ(budget.rows(), 2048);
  budget.observe(1000, 0, seconds(100));
  EXPECT_EQ(budget.rows(), kStepRowsMin);
}

}  // namespace
}  // namespace plimsoll
