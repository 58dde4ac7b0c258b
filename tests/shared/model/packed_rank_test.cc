#include "shared/model/packed_rank.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {
namespace {

// Of every rank of every number of ranks. Returns how many.
int expect_same(const ModelSpec& spec) {
  int compared = 0;
  for (std::int64_t tp = 1; tp <= spec.heads; ++tp) {
    const Result<ShardPlan> shards = plan_shards(spec, tp);
    if (!shards) continue;
    for (const RankShard& shard : shards->ranks) {
      EXPECT_EQ(packed_rank_bytes(spec, shard), rank_weights(spec, shard).bytes()) << tp;
      ++compared;
    }
  }
  return compared;
}

TEST(PackedRank, IsWhatTheWeightsOfTheRankComeTo) {
  LlamaShape mixed = smollm2_shape();
  mixed.tied_head = false;
  mixed.table_dtype = DType::q6_k;
  mixed.hidden = 768;
  mixed.dtype = DType::q4_0;
  EXPECT_EQ(expect_same(make_llama_spec(smollm2_shape())), 45);
  EXPECT_GT(expect_same(make_llama_spec(llama3_8b_shape())), 100);
  EXPECT_GT(expect_same(make_llama_spec(mixed)), 1);
}

// Biases, norms of heads and after blocks, rope_freqs, K-quants beside other types.
TEST(PackedRank, CountsWhatOnlySomeFamiliesHave) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3"}) {
    SCOPED_TRACE(architecture);
    const bool is_llama = std::string_view(architecture) == "llama";
    const auto bytes = make_tiny_model({.architecture = architecture,
                                        .type = DType::q4_0,
                                        .hidden = 256,
                                        .ffn = 512,
                                        .tied_head = !is_llama,
                                        .rope_freqs = is_llama});
    ASSERT_TRUE(bytes) << bytes.error().message;
    const auto file = GgufFile::parse(std::as_bytes(std::span(*bytes)));
    ASSERT_TRUE(file) << file.error().message;
    const auto spec = read_model_spec(*file);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_GT(expect_same(*spec), 1);
  }
}

}  // namespace
}  // namespace plimsoll
