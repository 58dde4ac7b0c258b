#include "shared/model/weight_share.h"

#include <gtest/gtest.h>

#include "tests/support/model_specs.h"

namespace plimsoll {
namespace {

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

}  // namespace
}  // namespace plimsoll
