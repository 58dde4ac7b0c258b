#include "worker/graph/family.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

ModelSpec spec_of(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                  std::int64_t head_dim) {
  ModelSpec spec;
  spec.layers = layers;
  spec.hidden = hidden;
  spec.heads = heads;
  spec.head_dim = head_dim;
  return spec;
}

TEST(Family, LlamaAndQwenScaleScoresByTheRootOfTheHead) {
  const ModelSpec spec = spec_of(2, 1024, 16, 64);
  for (const char* name : {"llama", "qwen2", "qwen3"}) {
    const DecoderFamily* family = find_decoder_family(name);
    ASSERT_NE(family, nullptr) << name;
    EXPECT_FLOAT_EQ(family->attention_scale(spec), 0.125F);
    EXPECT_EQ(family->embedding_scale(spec), 1.0F);
    EXPECT_EQ(family->gate, Epilogue::silu_mul);
  }
}

TEST(Family, Gemma3ScalesItsEmbeddingByTheRootOfItsWidth) {
  const DecoderFamily* family = find_decoder_family("gemma3");
  ASSERT_NE(family, nullptr);
  const ModelSpec small = spec_of(18, 640, 4, 256);
  EXPECT_FLOAT_EQ(family->embedding_scale(small), 25.298221F);
  EXPECT_FLOAT_EQ(family->attention_scale(small), 1.0F / 16);
  EXPECT_EQ(family->gate, Epilogue::gelu_mul);
}

TEST(Family, TheLargestGemma3ScalesScoresByItsWidthOverItsHeads) {
  const DecoderFamily* family = find_decoder_family("gemma3");
  ASSERT_NE(family, nullptr);
  EXPECT_FLOAT_EQ(family->attention_scale(spec_of(62, 5376, 32, 128)), 0.07715167F);  // 168^-1/2
}

TEST(Family, OthersAreNotFound) { EXPECT_EQ(find_decoder_family("deepseek2"), nullptr); }

}  // namespace
}  // namespace plimsoll
