#include "shared/memory/memory_terms.h"

#include <gtest/gtest.h>

#include "shared/base/replica_segment.h"
#include "tests/support/model_specs.h"

namespace plimsoll {
namespace {

struct Case {
  ModelSpec model;
  RankShape rank;
  StepShape step;
  std::int64_t tp;
  TermInputs inputs() const { return {.model = model, .rank = rank, .step = step, .tp = tp}; }
};

Case make_case(std::int64_t tp, std::size_t rank) {
  Case c{.model = make_llama_spec(smollm2_shape()),
         .rank = {},
         .step = {.context_length = 2048,
                  .max_running_requests = 16,
                  .step_tokens_max = 512,
                  .logit_rows_max = 64},
         .tp = tp};
  const Result<ShardPlan> shards = plan_shards(c.model, tp);
  EXPECT_TRUE(shards);
  const RankShard& shard = shards->ranks[rank];
  c.rank = {.shard = shard,
            .weights = rank_weights(c.model, shard).bytes(),
            .threads = 2,
            .leader = rank == 0};
  return c;
}

TEST(MemoryTerms, CountEachBufferOfALoneRank) {
  const Case c = make_case(1, 0);
  EXPECT_EQ(tables_bytes(c.inputs()), 2 * 2048 * 32 * 4 + 16 * 64 * 4);
  EXPECT_EQ(activations_bytes(c.inputs()), 512 * (576 + 960 + 576 + 1536) * 4);
  EXPECT_EQ(logits_bytes(c.inputs()), 64 * (576 + 49'152) * 4);
  EXPECT_EQ(collective_bytes(c.inputs()), 0);
  EXPECT_EQ(kv_block_bytes(c.model, c.rank.shard), 32 * 30 * 2 * 3 * 64 * 2);
}

TEST(MemoryTerms, ALeaderGathersLogitsAndSamples) {
  const Case leader = make_case(2, 0);
  const Case other = make_case(2, 1);
  EXPECT_GT(logits_bytes(leader.inputs()), logits_bytes(other.inputs()));
  // The sampler's arrays; others copy each step out of the ring.
  EXPECT_EQ(process_bytes(leader.inputs()) - process_bytes(other.inputs()),
            49'152 * 20 - kStepRingBytesDefault);
}

TEST(MemoryTerms, TheSharesOfTheSegmentMakeItWhole) {
  for (const std::int64_t tp : {2, 3}) {
    const Case c = make_case(tp, 0);
    EXPECT_GE(collective_bytes(c.inputs()) * tp,
              replica_segment_bytes({.ranks = static_cast<int>(tp)}));
  }
}

TEST(MemoryTerms, EveryTermThatTakesBytesHasAFormula) {
  for (const std::int64_t tp : {1, 2, 3}) {
    const Case c = make_case(tp, 0);
    const TermBytes bytes = cpu_term_bytes(c.inputs());
    Bytes sum = 0;
    for (std::size_t i = 0; i < kTermCount; ++i) {
      const auto term = static_cast<Term>(i);
      sum += bytes[term];
      if (bytes[term] == 0) continue;
      EXPECT_FALSE(cpu_term_formula(c.inputs(), term).empty()) << term_name(term);
    }
    EXPECT_EQ(sum, bytes.sum());
    EXPECT_GT(bytes[Term::weights], 0);
  }
}

TEST(MemoryTerms, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1'000), "1,000");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
}

}  // namespace
}  // namespace plimsoll
