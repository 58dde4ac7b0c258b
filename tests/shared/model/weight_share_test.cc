#include "shared/model/weight_share.h"

#include <gtest/gtest.h>

#include "shared/model/model_source.h"
#include "tests/support/model_specs.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

// With weights, by its config.json.
ModelSpec published(const std::string& name) {
  const auto file = parse_json(read_test_file(golden_path("models/" + name + ".json")));
  EXPECT_TRUE(file);
  const auto model = spec_of_config(*file->find("config"), name);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : ModelSpec{};
}

TEST(WeightShare, OneRankHoldsTheWholeFile) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const auto plan = plan_shards(model, 1);
  ASSERT_TRUE(plan);
  const RankShare share = rank_share(model, *plan, 0, {});
  EXPECT_EQ(share.total(), model.weight_bytes());
  EXPECT_EQ(share.replicated(), 0);
}

TEST(WeightShare, RanksTogetherHoldEachShardedByteOnce) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  for (const std::int64_t tp : {2, 3, 4, 7, 8}) {
    const auto plan = plan_shards(model, tp);
    ASSERT_TRUE(plan);
    Bytes sharded = 0;
    Bytes replicated = 0;
    for (std::size_t rank = 0; rank < plan->ranks.size(); ++rank) {
      const RankShare share = rank_share(model, *plan, rank, {});
      sharded += share.sharded();
      replicated = share.replicated();
    }
    const Bytes norms = (2 * 32 + 1) * 4096 * 4;
    EXPECT_EQ(replicated, norms) << tp;
    EXPECT_EQ(sharded, model.weight_bytes() - norms) << tp;
  }
}

TEST(WeightShare, KvHeadsThatNeighboursShareAreReplicated) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const auto plan = plan_shards(model, 16);
  ASSERT_TRUE(plan);
  const RankShare share = rank_share(model, *plan, 5, {});
  const Bytes kv_head = 32 * 2 * stored_bytes(DType::q8_0, 128 * 4096);
  EXPECT_EQ(share.replicated(), kv_head + (2 * 32 + 1) * 4096 * 4);
}

TEST(WeightShare, AnEmbeddingIsWholeWhereThePlacementSaysSo) {
  const ModelSpec model = make_llama_spec(llama3_8b_shape());
  const auto plan = plan_shards(model, 8);
  ASSERT_TRUE(plan);
  const Bytes embedding = stored_bytes(DType::q8_0, 128'256 * 4096);
  EXPECT_EQ(rank_share(model, *plan, 0, {}).part(WeightPart::embedding), embedding / 8);
  EXPECT_EQ(rank_share(model, *plan, 0, {.embedding_sharded = false}).part(WeightPart::embedding),
            embedding);
}

// 128 experts of 1,536 columns; 16 whole ones a rank.
TEST(WeightShare, ExpertsAreDividedWhole) {
  const ModelSpec model = published("qwen3-235b-a22b");
  ASSERT_EQ(model.experts.count, 128);
  const auto by_columns = plan_shards(model, 8);
  const auto whole = plan_device_shards(model, 8, 8);
  ASSERT_TRUE(by_columns && whole) << whole.error().message;
  Bytes experts = 0;
  for (std::size_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(whole->ranks[rank].experts, 16);
    EXPECT_EQ(whole->ranks[rank].expert_ffn, (Range{0, model.experts.ffn}));
    EXPECT_EQ(by_columns->ranks[rank].experts, 128);
    const RankShare share = rank_share(model, *whole, rank, {});
    EXPECT_EQ(share.part(WeightPart::experts),
              rank_share(model, *whole, 0, {}).part(WeightPart::experts));
    experts += share.part(WeightPart::experts);
  }
  const auto one = plan_shards(model, 1);
  EXPECT_EQ(experts, rank_share(model, *one, 0, {}).part(WeightPart::experts));
  // Two ranks to an expert.
  const auto halves = plan_device_shards(model, 8, 4);
  ASSERT_TRUE(halves);
  EXPECT_EQ(halves->ranks[5].experts, 32);
  EXPECT_EQ(halves->ranks[5].expert_ffn, (Range{model.experts.ffn / 2, model.experts.ffn}));
  EXPECT_EQ(rank_share(model, *halves, 5, {}).part(WeightPart::experts), experts / 8);
  // Over replicas of one rank.
  const auto replica = plan_device_shards(model, 1, 8);
  ASSERT_TRUE(replica);
  EXPECT_EQ(rank_share(model, *replica, 0, {}).part(WeightPart::experts), experts / 8);
}

// An expert's columns no longer bound the ranks; a shared expert that cannot be cut is whole.
TEST(WeightShare, MoreRanksThanAnExpertHasPieces) {
  const ModelSpec model = published("deepseek-r1");
  ASSERT_FALSE(plan_shards(model, 32));  // 2,048 columns in blocks of 128
  const auto shards = plan_device_shards(model, 32, 32);
  ASSERT_TRUE(shards) << shards.error().message;
  EXPECT_EQ(shards->ranks[31].experts, 8);
  EXPECT_EQ(shards->ranks[31].shared_ffn, (Range{0, model.experts.shared_ffn}));
}

}  // namespace
}  // namespace plimsoll
