#include "worker/graph/family.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Family, LlamaScalesScoresByTheRootOfTheHead) {
  const DecoderFamily* family = find_decoder_family("llama");
  ASSERT_NE(family, nullptr);
  EXPECT_FLOAT_EQ(family->attention_scale(64), 0.125F);
}

TEST(Family, OthersAreNotFound) { EXPECT_EQ(find_decoder_family("gemma3"), nullptr); }

}  // namespace
}  // namespace plimsoll
