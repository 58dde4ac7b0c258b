#include "kernels/simulated/fixed_tokens.h"

#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(FixedTokens, FollowFromTheTokenBeforeAndItsPosition) {
  EXPECT_EQ(fixed_token(5, 0, 100), 6);
  EXPECT_EQ(fixed_token(5, 10, 100), 16);
  EXPECT_EQ(fixed_token(99, 0, 100), 0);
  EXPECT_EQ(fixed_token(163'839, 262'143, 163'840), (163'839 + 262'144) % 163'840);
}

TEST(FixedTokens, StayWithinTheVocabularyAtEveryPosition) {
  for (std::int64_t position = 0; position < 1'000'000; position += 997) {
    const std::int32_t token = fixed_token(49'151, position, 49'152);
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 49'152);
  }
}

TEST(FixedTokens, AreSaidAboveAllOthersAndTakenBack) {
  std::vector<float> memory(2 * 8);
  const TensorView logits = f32_view(memory.data(), 2, 8);
  say_token(logits, 1, 3);
  for (std::size_t i = 0; i < memory.size(); ++i) EXPECT_EQ(memory[i] > 0, i == 8 + 3) << i;
  unsay_token(logits, 1, 3);
  EXPECT_EQ(memory, std::vector<float>(16));
}

}  // namespace
}  // namespace plimsoll
