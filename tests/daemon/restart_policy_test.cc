#include "daemon/restart_policy.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

TEST(RestartPolicy, BadInputIsNeverRetried) {
  for (const Code code : {Code::invalid, Code::not_found, Code::corrupt}) {
    RestartPolicy policy(1, 5);
    policy.became_ready(kStart);
    EXPECT_FALSE(policy.next_delay(code, kStart)) << code_name(code);
  }
}

TEST(RestartPolicy, WhatHasFittedBeforeMayFitAgain) {
  RestartPolicy policy(1, 5);
  EXPECT_FALSE(policy.next_delay(Code::does_not_fit, kStart));
  policy.became_ready(kStart);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(policy.next_delay(Code::does_not_fit, kStart)) << i;
}

TEST(RestartPolicy, DelaysDoubleUpToAMinute) {
  RestartPolicy policy(1, 5);
  policy.became_ready(kStart);
  const double expected[] = {0.1, 1, 2, 4, 8, 16, 32, 60, 60, 60};
  for (const double delay : expected) {
    const std::optional<Duration> got = policy.next_delay(Code::unavailable, kStart);
    ASSERT_TRUE(got);
    EXPECT_GE(to_seconds(*got), 0.8 * delay - 1e-6);
    EXPECT_LE(to_seconds(*got), std::min(1.2 * delay + 1e-6, 60.0));
  }
}

TEST(RestartPolicy, NoDelayIsLongerThanWhoWaitsCanWait) {
  RestartPolicy policy(1, 5);
  policy.became_ready(kStart);
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(*policy.next_delay(Code::unavailable, kStart, seconds(3)), seconds(3)) << i;
  }
}

TEST(RestartPolicy, AMinuteOfHealthForgivesEverything) {
  RestartPolicy policy(1, 5);
  for (int i = 0; i < 4; ++i) (void)policy.next_delay(Code::internal, kStart);
  policy.became_ready(kStart);
  EXPECT_GT(*policy.next_delay(Code::internal, kStart + seconds(59)), seconds(2));
  policy.became_ready(kStart + seconds(100));
  EXPECT_LT(*policy.next_delay(Code::internal, kStart + seconds(160)), seconds(1));
}

TEST(RestartPolicy, WhatNeverBecameReadyIsGivenUp) {
  RestartPolicy policy(1, 3);
  EXPECT_TRUE(policy.next_delay(Code::unavailable, kStart));
  EXPECT_TRUE(policy.next_delay(Code::unavailable, kStart));
  EXPECT_FALSE(policy.next_delay(Code::unavailable, kStart));
}

TEST(RestartPolicy, TheJitterFollowsTheSeed) {
  RestartPolicy one(7, 5);
  RestartPolicy same(7, 5);
  RestartPolicy other(8, 5);
  const auto first = one.next_delay(Code::internal, kStart);
  EXPECT_EQ(first, same.next_delay(Code::internal, kStart));
  EXPECT_NE(first, other.next_delay(Code::internal, kStart));
}

}  // namespace
}  // namespace plimsoll
