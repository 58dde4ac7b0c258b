#include "shared/model/weight_table.h"

#include <set>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

ModelSpec kimi_sizes() {
  ModelSpec model;
  model.hidden = 7168;
  model.heads = 64;
  model.kv_heads = 1;
  model.head_dim = 192;
  model.vocab = 163'840;
  model.latent = LatentAttention{.q_rank = 1536,
                                 .kv_rank = 512,
                                 .nope_dim = 128,
                                 .rope_dim = 64,
                                 .value_dim = 128,
                                 .has_kv_b = true};
  return model;
}

TEST(WeightTable, FindsRowsByBothNames) {
  const WeightRow* row = find_hf_row("self_attn.q_proj");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row, find_gguf_row("attn_q"));
  EXPECT_EQ(row->by, CutBy::heads);
  EXPECT_FALSE(row->cuts_columns);
  EXPECT_EQ(find_hf_row("self_attn.rotary_emb.inv_freq"), nullptr);
  EXPECT_EQ(find_hf_row(""), nullptr);
  EXPECT_EQ(find_gguf_row(""), nullptr);
}

TEST(WeightTable, SizesFollowTheModel) {
  const ModelSpec model = kimi_sizes();
  EXPECT_EQ(dim_size(model, Dim::query), 64 * 192);
  EXPECT_EQ(dim_size(model, Dim::attention), 64 * 128);
  EXPECT_EQ(dim_size(model, Dim::kv_a), 576);
  EXPECT_EQ(dim_size(model, Dim::kv_b), 64 * 256);
}

// What the shard plan divides by must divide the dimension that it cuts.
TEST(WeightTable, ACutDimensionIsAMultipleOfWhatCutsIt) {
  ModelSpec model = kimi_sizes();
  model.ffn = 18'432;
  model.experts = {.layers = 60, .count = 384, .used = 8, .ffn = 2048, .shared_ffn = 2048};
  for (const WeightRow& row : weight_table()) {
    const std::int64_t elements = dim_size(model, row.cuts_columns ? row.cols : row.rows);
    EXPECT_EQ(elements % cut_count(model, row.by), 0) << row.hf << " " << row.gguf;
  }
}

TEST(WeightTable, ColumnsAreCutWhereTheNextSumIsReduced) {
  for (const WeightRow& row : weight_table()) {
    EXPECT_TRUE(!row.cuts_columns || row.rows == Dim::hidden) << row.hf;
  }
}

TEST(WeightTable, NoNameIsThereTwiceForTheSameFeatures) {
  std::set<std::tuple<std::string_view, Features, Features>> hf;
  std::set<std::string_view> gguf;
  for (const WeightRow& row : weight_table()) {
    EXPECT_TRUE(row.hf.empty() || hf.insert({row.hf, row.needs, row.excludes}).second) << row.hf;
    EXPECT_TRUE(row.gguf.empty() || gguf.insert(row.gguf).second) << row.gguf;
  }
}

}  // namespace
}  // namespace plimsoll
