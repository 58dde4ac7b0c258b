#include "worker/sample/softmax.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Softmax, WeightsAreExponentialsWithinAMillionth) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(-90, 0);
  for (const std::size_t size : {1U, 3U, 4U, 1001U}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = uniform(random) + 17;
    logits[size / 2] = 17;
    for (const float scale : {0.3F, 1.0F, 5.0F}) {
      std::vector<float> weights(size);
      const double sum = softmax_weights(logits, 17, scale, weights);
      double expected_sum = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const double x = static_cast<double>((logits[i] - 17) * scale);
        const double expected = x < -86 ? 0 : std::exp(x);
        expected_sum += expected;
        EXPECT_NEAR(weights[i], expected, 1e-6 * expected) << x;
      }
      EXPECT_NEAR(sum, expected_sum, 1e-6 * expected_sum);
    }
  }
}

TEST(Softmax, TheLargestWeighsOneAndMinusInfinityNothing) {
  const std::vector<float> logits = {-kInfinity, 3, -kInfinity, 2, -1e30F};
  std::vector<float> weights(logits.size());
  softmax_weights(logits, 3, 1, weights);
  EXPECT_EQ(weights[0], 0);
  EXPECT_EQ(weights[1], 1);
  EXPECT_EQ(weights[4], 0);
}

TEST(Softmax, FindsTheLargestWhereverItIs) {
  for (std::size_t at = 0; at < 11; ++at) {
    std::vector<float> logits(11, -5);
    logits[at] = 2;
    EXPECT_EQ(largest_logit(logits), 2);
  }
}

TEST(Softmax, UnusableLogitsHaveNoLargest) {
  for (std::size_t at = 0; at < 7; ++at) {
    std::vector<float> logits(7, -5);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(largest_logit(logits)) << at;
    logits[at] = kInfinity;
    EXPECT_FALSE(largest_logit(logits)) << at;
    logits[at] = -kInfinity;
    EXPECT_EQ(largest_logit(logits), -5) << at;
  }
  EXPECT_FALSE(largest_logit(std::vector<float>(7, -kInfinity)));
}

}  // namespace
}  // namespace plimsoll
