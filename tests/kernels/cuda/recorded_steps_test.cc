#include "kernels/cuda/recorded_steps.h"

#include <gtest/gtest.h>

#include "kernels/cuda/launches.h"

namespace plimsoll::cuda {
namespace {

constexpr std::int64_t kSplit = std::int64_t{kSplitPages} * kPageTokens;

TEST(RecordedSteps, AShortContextNeedsOneRecordingWithoutSplits) {
  RecordedSteps steps;
  const auto added = steps.add(4, kSplit);
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0].splits, 1);
  EXPECT_EQ(&steps.find(4, 1), added.data());
}

TEST(RecordedSteps, WhereAllSplitsMayBeBlocksOneRecordingServesEveryLength) {
  RecordedSteps steps;
  const auto added = steps.add(2, 10 * kSplit - 1);
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0].splits, 10);
  for (const std::int64_t splits : {1, 5, 10}) EXPECT_EQ(steps.find(2, splits).splits, 10);
}

TEST(RecordedSteps, LongContextsOfManyRowsHaveASecondOne) {
  RecordedSteps steps;
  const std::int64_t rows = 64;
  ASSERT_EQ(steps.add(rows, 100 * kSplit).size(), 2U);
  EXPECT_EQ(steps.find(rows, 3).splits, kPartialsMax / rows);
  EXPECT_EQ(steps.find(rows, kPartialsMax / rows).splits, kPartialsMax / rows);
  EXPECT_EQ(steps.find(rows, kPartialsMax / rows + 1).splits, 1);
}

TEST(RecordedSteps, MoreRowsThanPartialResultsHaveNoSplits) {
  RecordedSteps steps;
  ASSERT_EQ(steps.add(kPartialsMax, 100 * kSplit).size(), 1U);
  EXPECT_EQ(steps.find(kPartialsMax, 100).splits, 1);
}

}  // namespace
}  // namespace plimsoll::cuda
