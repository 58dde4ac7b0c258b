#include "shared/model/shard_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"

namespace plimsoll {
namespace {

// SmolLM2's where a test says nothing else.
struct Shape {
  std::int64_t layers = 30;
  std::int64_t hidden = 576;
  std::int64_t ffn = 1536;
  std::int64_t heads = 9;
  std::int64_t kv_heads = 3;
  std::int64_t head_dim = 64;
  std::int64_t vocab = 49152;
  DType type = DType::q4_1;
  DType down_type = DType::q4_1;
  bool tied_head = true;
};

ModelSpec spec_of(const Shape& shape) {
  return make_llama_spec({.layers = shape.layers,
                          .hidden = shape.hidden,
                          .ffn = shape.ffn,
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .vocab = shape.vocab,
                          .dtype = shape.type,
                          .table_dtype = DType::q8_0,
                          .down_dtype = shape.down_type,
                          .tied_head = shape.tied_head});
}

struct ShapeCase {
  Shape shape;
  std::int64_t output_segment;
  std::int64_t down_segment;
};

// What every plan must keep, whatever the shape.
void expect_sound(const ModelSpec& spec, const ShardPlan& plan, std::int64_t ffn_unit) {
  std::int64_t head = 0;
  std::int64_t column = 0;
  std::int64_t row = 0;
  const std::int64_t group = spec.heads / spec.kv_heads;
  for (const RankShard& rank : plan.ranks) {
    EXPECT_EQ(rank.heads.begin, head);
    EXPECT_EQ(rank.ffn.begin, column);
    EXPECT_EQ(rank.vocab.begin, row);
    head = rank.heads.end;
    column = rank.ffn.end;
    row = rank.vocab.end;
    EXPECT_GT(rank.heads.size(), 0);
    EXPECT_GT(rank.ffn.size(), 0);
    EXPECT_GT(rank.vocab.size(), 0);
    EXPECT_EQ(rank.heads.size() % rank.kv_heads.size(), 0);
    EXPECT_EQ(rank.kv_heads.begin, rank.heads.begin / group);
    EXPECT_EQ(rank.kv_heads.end, (rank.heads.end - 1) / group + 1);
    EXPECT_EQ(rank.ffn.begin % ffn_unit, 0);
    EXPECT_EQ(rank.vocab.begin % kPackedRows, 0);
  }
  EXPECT_EQ(head, spec.heads);
  EXPECT_EQ(column, spec.ffn);
  EXPECT_EQ(row, spec.vocab);
}

Bytes layer_bytes(const RankWeights& weights) {
  Bytes sum = 0;
  for (const MatrixPlan& matrix : weights.matrices) {
    if (matrix.name.starts_with("blk.")) sum += matrix.packed_bytes;
  }
  return sum;
}

TEST(ShardPlan, TwoRanksSplitNineHeadsByKvGroupsAndBalanceWithTheFeedForward) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 2);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->ranks.size(), 2U);
  EXPECT_EQ(plan->ranks[0], (RankShard{{0, 6}, {0, 2}, {0, 640}, {0, 24576}}));
  EXPECT_EQ(plan->ranks[1], (RankShard{{6, 9}, {2, 3}, {640, 1536}, {24576, 49152}}));
  const auto first = static_cast<double>(layer_bytes(rank_weights(spec, plan->ranks[0])));
  const auto second = static_cast<double>(layer_bytes(rank_weights(spec, plan->ranks[1])));
  EXPECT_NEAR(first / second, 1, 0.081);
}

TEST(ShardPlan, OneRankHoldsEverything) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 1);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks.at(0), (RankShard{{0, 9}, {0, 3}, {0, 1536}, {0, 49152}}));
}

TEST(ShardPlan, ThreeRanksAreAlike) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 3);
  ASSERT_TRUE(plan) << plan.error().message;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const RankShard& shard = plan->ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(shard.heads, (Range{rank * 3, rank * 3 + 3}));
    EXPECT_EQ(shard.kv_heads, (Range{rank, rank + 1}));
    EXPECT_EQ(shard.ffn.size(), 512);
    EXPECT_EQ(shard.vocab.size(), 16384);
  }
}

TEST(ShardPlan, EveryNumberOfRanksUpToTheHeadsIsSoundAndBalanced) {
  const ModelSpec spec = spec_of({});
  for (std::int64_t tp = 1; tp <= 9; ++tp) {
    SCOPED_TRACE(tp);
    const auto plan = plan_shards(spec, tp);
    ASSERT_TRUE(plan) << plan.error().message;
    expect_sound(spec, *plan, 128);
    std::vector<Bytes> loads;
    for (const RankShard& rank : plan->ranks)
      loads.push_back(layer_bytes(rank_weights(spec, rank)));
    const auto [least, most] = std::ranges::minmax(loads);
    // No rank can be relieved by one unit of the feed-forward, all layers.
    EXPECT_LE(most - least, 30 * 3 * stored_bytes(DType::q4_1, 128 * 576));
  }
}

TEST(ShardPlan, MoreRanksThanKvHeadsShareOne) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 4);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].heads, (Range{0, 2}));
  EXPECT_EQ(plan->ranks[1].heads, (Range{2, 3}));
  EXPECT_EQ(plan->ranks[0].kv_heads, (Range{0, 1}));
  EXPECT_EQ(plan->ranks[1].kv_heads, (Range{0, 1}));
  EXPECT_EQ(plan->ranks[2].kv_heads, (Range{1, 2}));
  EXPECT_EQ(plan->ranks[3].heads, (Range{6, 9}));
}

TEST(ShardPlan, RefusesMoreRanksThanHeads) {
  const ModelSpec spec = spec_of({});
  for (const std::int64_t tp : {std::int64_t{-1}, std::int64_t{0}}) {
    const auto plan = plan_shards(spec, tp);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::invalid);
  }
  const auto plan = plan_shards(spec, 10);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "tp 10 is too many ranks for this model: it has 9 heads; tp can be 1 to 9");
}

// Llama-3-8B's shape: 32 heads of 128, 8 KV heads. A Q4_K block is two heads.
TEST(ShardPlan, KQuantsAreCutOnTheirBlocks) {
  const ModelSpec spec = spec_of({.layers = 2,
                                  .hidden = 4096,
                                  .ffn = 14336,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .vocab = 128256,
                                  .type = DType::q4_k,
                                  .down_type = DType::q6_k,
                                  .tied_head = false});
  for (const std::int64_t tp : {1, 2, 3, 4, 8, 12, 16}) {
    SCOPED_TRACE(tp);
    const auto plan = plan_shards(spec, tp);
    ASSERT_TRUE(plan) << plan.error().message;
    expect_sound(spec, *plan, 256);
    for (const RankShard& rank : plan->ranks) EXPECT_EQ(rank.heads.begin * 128 % 256, 0);
  }
  const auto plan = plan_shards(spec, 17);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("blocks of 256 columns, and its heads have 128; tp can be 1 "
                                      "to 16"),
            std::string::npos)
      << plan.error().message;
}

// What kernels sum in f32 must not depend on how many ranks share the columns.
TEST(ShardPlan, NoNumberOfRanksCutsASegment) {
  const ShapeCase shapes[] = {
      {{}, 64, 128},
      {{.ffn = 512, .head_dim = 32}, 32, 32},
      {{.ffn = 3072, .heads = 16, .kv_heads = 8, .head_dim = 48}, 96, 256},
      {{.hidden = 1024,
        .ffn = 4096,
        .heads = 8,
        .kv_heads = 4,
        .head_dim = 128,
        .type = DType::q4_k,
        .down_type = DType::q6_k},
       256,
       256},
      {{.ffn = 96, .head_dim = 16, .type = DType::f16, .down_type = DType::f32}, 16, 32}};
  for (ShapeCase c : shapes) {
    c.shape.layers = 2;
    const ModelSpec spec = spec_of(c.shape);
    for (std::int64_t tp = 1; tp <= spec.heads; ++tp) {
      const auto plan = plan_shards(spec, tp);
      if (!plan) continue;
      for (const RankShard& shard : plan->ranks) {
        const RankWeights weights = rank_weights(spec, shard);
        for (const MatrixPlan& matrix : weights.matrices) {
          const bool output = matrix.name.ends_with("attn_output");
          const bool down = matrix.name.ends_with("ffn_down");
          const std::int64_t expected = output ? c.output_segment : down ? c.down_segment : 0;
          ASSERT_EQ(matrix.segment_cols, expected) << matrix.name << ", tp " << tp;
          if (expected == 0) continue;
          const WeightSlice& part = matrix.parts.at(0);
          EXPECT_EQ(part.cols.begin % expected, 0) << matrix.name << ", tp " << tp;
          EXPECT_TRUE(part.cols.end % expected == 0 || part.cols.end == part.weight->cols());
        }
      }
    }
  }
}

// A KV group of 64 columns: four groups make one block, so six KV heads come as four and two.
TEST(ShardPlan, GroupsNarrowerThanABlockStayTogether) {
  const ModelSpec spec = spec_of({.layers = 1,
                                  .hidden = 512,
                                  .ffn = 1024,
                                  .heads = 8,
                                  .kv_heads = 8,
                                  .head_dim = 64,
                                  .vocab = 512,
                                  .type = DType::q4_k,
                                  .down_type = DType::q4_k});
  const auto plan = plan_shards(spec, 2);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].kv_heads, (Range{0, 4}));
  EXPECT_EQ(plan->ranks[1].kv_heads, (Range{4, 8}));
  EXPECT_FALSE(plan_shards(spec, 3));
}

TEST(ShardPlan, TheNarrowestPartLimitsTheRanks) {
  const auto ffn = plan_shards(spec_of({.layers = 1, .ffn = 64}), 3);
  ASSERT_FALSE(ffn);
  EXPECT_NE(ffn.error().message.find("feed-forward has 64 columns"), std::string::npos);
  EXPECT_NE(ffn.error().message.find("tp can be 1 to 2"), std::string::npos);
  const auto vocab = plan_shards(spec_of({.layers = 1, .vocab = 20}), 3);
  ASSERT_FALSE(vocab);
  EXPECT_NE(vocab.error().message.find("vocabulary has 20 rows"), std::string::npos);
}

TEST(ShardPlan, AVocabularyThatIsNoMultipleEndsWithAPart) {
  const ModelSpec spec = spec_of({.layers = 1, .vocab = 283});
  const auto plan = plan_shards(spec, 2);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].vocab, (Range{0, 144}));
  EXPECT_EQ(plan->ranks[1].vocab, (Range{144, 283}));
}

TEST(RankWeights, OneRankOfTheDefaultShapeTakesTheFilesBytes) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 1);
  const RankWeights weights = rank_weights(spec, plan->ranks[0]);
  EXPECT_EQ(weights.bytes(), spec.weights.bytes());
  EXPECT_EQ(weights.matrices.size(), 1U + 30 * 4);
  EXPECT_EQ(weights.vectors.size(), 30U * 2 + 1);
  EXPECT_EQ(weights.matrices.front().name, "head");
  EXPECT_EQ(weights.vectors.back().name, "output_norm.weight");
}

TEST(RankWeights, ATiedHeadIsWholeOnEveryRank) {
  const ModelSpec spec = spec_of({});
  const auto plan = plan_shards(spec, 2);
  for (const RankShard& rank : plan->ranks) {
    const RankWeights weights = rank_weights(spec, rank);
    const auto heads = std::ranges::count(weights.matrices, "head", &MatrixPlan::name);
    EXPECT_EQ(heads, 1);
    const WeightSlice& part = weights.matrices.front().parts.at(0);
    EXPECT_EQ(part.weight->name, "token_embd.weight");
    EXPECT_EQ(part.rows, (Range{0, 49152}));
  }
}

TEST(RankWeights, AnOwnHeadIsCutByTheVocabulary) {
  const ModelSpec spec = spec_of({.layers = 1, .tied_head = false});
  const auto plan = plan_shards(spec, 3);
  const RankWeights weights = rank_weights(spec, plan->ranks[1]);
  EXPECT_EQ(weights.matrices.front().name, "embedding");
  EXPECT_EQ(weights.matrices.front().parts.at(0).rows, (Range{0, 49152}));
  EXPECT_EQ(weights.matrices.back().name, "head");
  EXPECT_EQ(weights.matrices.back().parts.at(0).weight->name, "output.weight");
  EXPECT_EQ(weights.matrices.back().parts.at(0).rows, (Range{16384, 32768}));
}

TEST(RankWeights, PartsAreCutByHeadsAndFeedForward) {
  const ModelSpec spec = spec_of({.layers = 1});
  const auto plan = plan_shards(spec, 2);
  const RankWeights weights = rank_weights(spec, plan->ranks[1]);
  ASSERT_EQ(weights.matrices.size(), 5U);
  const MatrixPlan& qkv = weights.matrices[1];
  EXPECT_EQ(qkv.name, "blk.0.qkv");
  ASSERT_EQ(qkv.parts.size(), 3U);
  EXPECT_EQ(qkv.parts[0].rows, (Range{384, 576}));
  EXPECT_EQ(qkv.parts[1].rows, (Range{128, 192}));
  EXPECT_EQ(qkv.parts[2].weight->name, "blk.0.attn_v.weight");
  EXPECT_EQ(qkv.packed_bytes, stored_bytes(DType::q4_1, (192 + 64 + 64) * 576));
  const MatrixPlan& output = weights.matrices[2];
  EXPECT_EQ(output.name, "blk.0.attn_output");
  EXPECT_EQ(output.parts.at(0).rows, (Range{0, 576}));
  EXPECT_EQ(output.parts.at(0).cols, (Range{384, 576}));
  const MatrixPlan& gate_up = weights.matrices[3];
  EXPECT_EQ(gate_up.name, "blk.0.gate_up");
  ASSERT_EQ(gate_up.parts.size(), 2U);
  EXPECT_EQ(gate_up.parts[0].rows, plan->ranks[1].ffn);
  EXPECT_EQ(gate_up.parts[1].rows, plan->ranks[1].ffn);
  EXPECT_EQ(weights.matrices[4].name, "blk.0.ffn_down");
  EXPECT_EQ(weights.matrices[4].parts.at(0).cols, plan->ranks[1].ffn);
}

// Over all ranks each element of a layer is held once, except the KV rows that neighbours share.
TEST(RankWeights, RanksTogetherCoverEachLayer) {
  const ModelSpec spec = spec_of({.layers = 2});
  for (std::int64_t tp = 1; tp <= 9; ++tp) {
    SCOPED_TRACE(tp);
    std::map<std::string, std::int64_t> elements;
    std::set<std::tuple<std::string, std::int64_t, std::int64_t>> seen;
    const auto plan = plan_shards(spec, tp);
    ASSERT_TRUE(plan) << plan.error().message;
    for (const RankShard& rank : plan->ranks) {
      for (const MatrixPlan& matrix : rank_weights(spec, rank).matrices) {
        for (const WeightSlice& part : matrix.parts) {
          if (!seen.emplace(part.weight->name, part.rows.begin, part.cols.begin).second) continue;
          elements[part.weight->name] += part.rows.size() * part.cols.size();
        }
      }
    }
    for (const auto& [name, count] : elements) {
      const WeightInfo* weight = spec.weights.find(name);
      EXPECT_EQ(count, weight->rows() * weight->cols()) << name;
    }
    EXPECT_EQ(elements.size(), 1U + 2 * 7);
  }
}

TEST(RankWeights, PartsStartOnCacheLines) {
  // 3 blocks a row: a packed part of 16 * 3 * 18 = 864 bytes, no multiple of 64.
  const ModelSpec spec = spec_of({.layers = 1,
                                  .hidden = 96,
                                  .ffn = 32,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 16,
                                  .vocab = 16,
                                  .type = DType::f32,
                                  .down_type = DType::q4_0});
  const auto plan = plan_shards(spec, 1);
  ASSERT_TRUE(plan) << plan.error().message;
  const RankWeights weights = rank_weights(spec, plan->ranks[0]);
  EXPECT_EQ(slice_bytes(weights.matrices[0].parts[0]), 16 * 3 * 34);
  Bytes sum = 0;
  for (const MatrixPlan& matrix : weights.matrices) {
    EXPECT_EQ(matrix.packed_bytes % kWeightAlignment, 0) << matrix.name;
    Bytes parts = 0;
    for (const WeightSlice& part : matrix.parts) {
      parts += round_up(slice_bytes(part), kWeightAlignment);
    }
    EXPECT_EQ(matrix.packed_bytes, parts) << matrix.name;
    sum += parts;
  }
  for (const VectorPlan& vector : weights.vectors) {
    EXPECT_EQ(vector.bytes, 384) << vector.name;
    sum += vector.bytes;
  }
  EXPECT_EQ(weights.bytes(), sum);
}

}  // namespace
}  // namespace plimsoll
