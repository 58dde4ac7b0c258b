#include "worker/sample/penalties.h"

#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Penalties, FrequencyCountsAndPresenceDoesNot) {
  Penalties penalties(4);
  std::vector<float> logits = {1, 1, 1, 1};
  const std::vector<std::int32_t> output = {2, 0, 2, 2};
  penalties.apply(output, 0.5, 0.25, logits);
  EXPECT_EQ(logits, (std::vector<float>{0.25F, 1, -0.75F, 1}));
}

TEST(Penalties, ACallLeavesNothingForTheNext) {
  Penalties penalties(4);
  std::vector<float> logits = {1, 1, 1, 1};
  penalties.apply(std::vector<std::int32_t>{1, 1}, 1, 0, logits);
  logits = {1, 1, 1, 1};
  penalties.apply(std::vector<std::int32_t>{3}, 1, 0, logits);
  EXPECT_EQ(logits, (std::vector<float>{1, 1, 1, 0}));
}

}  // namespace
}  // namespace plimsoll
