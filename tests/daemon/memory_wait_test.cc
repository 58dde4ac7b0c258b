#include "daemon/memory_wait.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

TEST(MemoryWait, EndsWhenNothingIsReleased) {
  MemoryWait wait;
  EXPECT_FALSE(wait.has_begun());
  TimePoint at = kStart;
  while (const auto next = wait.next_look(kGiB, at)) {
    EXPECT_EQ(*next - at, kMemoryPoll);
    at = *next;
  }
  EXPECT_EQ(at - kStart, kMemoryQuiet);
  EXPECT_TRUE(wait.has_begun());
}

TEST(MemoryWait, GoesOnWhileMemoryIsReleasedButNotForEver) {
  MemoryWait wait;
  TimePoint at = kStart;
  Bytes available = kGiB;
  while (const auto next = wait.next_look(available, at)) {
    at = *next;
    available += kMemoryGrowth;
  }
  EXPECT_GE(at - kStart, kMemoryLongest);
  EXPECT_LE(at - kStart, kMemoryLongest + kMemoryPoll);
}

TEST(MemoryWait, ALittleMoreIsNoRelease) {
  MemoryWait wait;
  ASSERT_TRUE(wait.next_look(kGiB, kStart));
  EXPECT_TRUE(wait.next_look(kGiB + kMemoryGrowth - 1, kStart + seconds(2)));
  EXPECT_FALSE(wait.next_look(kGiB + kMemoryGrowth - 1, kStart + kMemoryQuiet));
}

}  // namespace
}  // namespace plimsoll
