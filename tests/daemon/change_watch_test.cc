#include "daemon/change_watch.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Verdict = ChangeWatch::Verdict;

constexpr TimePoint kStart = TimePoint() + seconds(100);
constexpr TimePoint kEnd = kStart + ChangeWatch::kWatchTime;

TEST(ChangeWatch, WhatServesToTheEndIsCommittedThenAndNotBefore) {
  ChangeWatch watch(kStart);
  EXPECT_EQ(watch.look({.is_serving = true}, kStart), Verdict::wait);
  EXPECT_EQ(watch.next_look(), kEnd);
  EXPECT_EQ(watch.look({.is_serving = true}, kEnd), Verdict::commit);
}

TEST(ChangeWatch, ADeathCountsOnlyWhenItsCauseIsKnown) {
  ChangeWatch watch(kStart);
  const TimePoint later = kEnd + seconds(1);
  EXPECT_EQ(watch.look({.is_serving = true, .is_dying = true}, later), Verdict::wait);
  EXPECT_EQ(watch.look({.is_serving = false, .is_dying = true}, kStart), Verdict::wait);
  EXPECT_EQ(watch.look({.is_serving = true, .replica_fault_at = later}, later), Verdict::take_back);
}

TEST(ChangeWatch, AFaultOfTheGenerationBeforeDoesNotCount) {
  ChangeWatch watch(kStart);
  const TimePoint earlier = kStart - milliseconds(1);
  EXPECT_EQ(watch.look({.is_serving = true, .replica_fault_at = earlier}, kEnd), Verdict::commit);
}

TEST(ChangeWatch, WhoServesAgainWithoutAFaultIsCommittedThen) {
  ChangeWatch watch(kStart);
  EXPECT_EQ(watch.look({}, kEnd), Verdict::wait);
  EXPECT_EQ(watch.next_look(), kEnd + ChangeWatch::kGraceTime);
  EXPECT_EQ(watch.look({.is_serving = true}, kEnd + seconds(1)), Verdict::commit);
}

TEST(ChangeWatch, WhoNeverServesAgainIsTakenBack) {
  ChangeWatch watch(kStart);
  EXPECT_EQ(watch.look({}, kEnd + ChangeWatch::kGraceTime), Verdict::take_back);
}

}  // namespace
}  // namespace plimsoll
