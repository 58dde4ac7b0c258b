#include "shared/model/kv_shape.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"

namespace plimsoll {
namespace {

ModelSpec with_heads(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                     std::int64_t head_dim) {
  return make_llama_spec({.layers = layers,
                          .hidden = 64,
                          .ffn = 4096,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .vocab = 1024});
}

RankShard first_rank(const ModelSpec& model, std::int64_t tp) {
  const auto plan = plan_shards(model, tp);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? plan->ranks.front() : RankShard{};
}

TEST(KvShape, EachRankHoldsItsKvHeads) {
  const ModelSpec llama70b = with_heads(80, 64, 8, 128);
  EXPECT_EQ(kv_token_bytes(llama70b, first_rank(llama70b, 8), KvType::bf16), 40'960);
  EXPECT_EQ(kv_token_bytes(llama70b, first_rank(llama70b, 1), KvType::f16), 327'680);
}

TEST(KvShape, MoreRanksThanKvHeadsHoldCopies) {
  const ModelSpec qwen = with_heads(94, 64, 4, 128);
  EXPECT_EQ(kv_token_bytes(qwen, first_rank(qwen, 4), KvType::bf16), 48'128);
  EXPECT_EQ(kv_token_bytes(qwen, first_rank(qwen, 8), KvType::bf16), 48'128);
  EXPECT_EQ(kv_copies(qwen, *plan_shards(qwen, 4)), 1);
  EXPECT_EQ(kv_copies(qwen, *plan_shards(qwen, 8)), 2);
}

TEST(KvShape, ALatentIsOnEveryRankWhole) {
  ModelSpec model;
  model.layers = 61;
  model.heads = 64;
  model.kv_heads = 1;
  model.head_dim = 192;
  model.latent = LatentAttention{.q_rank = 1536,
                                 .kv_rank = 512,
                                 .nope_dim = 128,
                                 .rope_dim = 64,
                                 .value_dim = 128,
                                 .has_kv_b = true};
  ShardPlan plan;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    RankShard shard;
    shard.heads = {8 * rank, 8 * rank + 8};
    shard.kv_heads = {0, 1};
    plan.ranks.push_back(shard);
    EXPECT_EQ(kv_token_bytes(model, shard, KvType::bf16), 70'272);
    EXPECT_EQ(kv_token_bytes(model, shard, KvType::fp8), 35'136);
  }
  EXPECT_EQ(model.kv_bytes_per_token(1), 70'272);
  EXPECT_EQ(kv_copies(model, plan), 8);
}

TEST(KvShape, LayersWithAWindowKeepNoMoreThanIt) {
  ModelSpec gemma = with_heads(6, 4, 1, 256);
  gemma.window = 512;
  gemma.full_layers = {5};
  const RankShard shard = first_rank(gemma, 1);
  const auto kinds = kv_layers(gemma, shard);
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].layers, 1);
  EXPECT_EQ(kinds[0].window, 0);
  EXPECT_EQ(kinds[1].layers, 5);
  EXPECT_EQ(kinds[1].window, 512);
  EXPECT_EQ(kv_sequence_bytes(gemma, shard, KvType::f16, 100), 100 * 6 * 1024);
  EXPECT_EQ(kv_sequence_bytes(gemma, shard, KvType::f16, 32'768), 32'768 * 1024 + 512 * 5 * 1024);
  gemma.full_layers.clear();
  EXPECT_EQ(kv_sequence_bytes(gemma, shard, KvType::f16, 32'768), 512 * 6 * 1024);
}

}  // namespace
}  // namespace plimsoll
