#include "shared/memory/memory_fit.h"

#include <gtest/gtest.h>

#include "shared/memory/memory_plan.h"
#include "shared/memory/search.h"
#include "shared/memory/step_message.h"
#include "shared/model/kv_shape.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

FitInputs inputs_of(const ModelSpec& model, Bytes budget, std::int64_t tp = 1) {
  const Result<ShardPlan> shards = plan_shards(model, tp);
  EXPECT_TRUE(shards);
  FitInputs in;
  in.model = &model;
  in.tp = tp;
  in.free_before_weights = budget;
  for (const RankShard& shard : shards->ranks) {
    in.ranks.push_back({.shard = shard,
                        .weights = rank_weights(model, shard).bytes(),
                        .threads = 1,
                        .leader = in.ranks.empty(),
                        .budget = budget,
                        .kv_token_bytes = kv_token_bytes(model, shard, KvType::f16)});
  }
  return in;
}

// The same inputs with another budget.
FitInputs with_budget(FitInputs in, Bytes budget) {
  for (RankShape& rank : in.ranks) rank.budget = budget;
  in.free_before_weights = budget;
  return in;
}

TEST(MemoryFit, KeepsWhatWasGiven) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, 4 * kGiB);
  in.context_length = 1000;
  in.max_running_requests = 7;
  in.chunked_prefill_size = 128;
  const Fit fit = decide_fit(in);
  EXPECT_TRUE(fit.fits);
  EXPECT_EQ(fit.step.context_length, 1000);
  EXPECT_EQ(fit.step.max_running_requests, 7);
  EXPECT_EQ(fit.step.step_tokens_max, 128);
  EXPECT_EQ(fit.kv_blocks, 7 * 32);
}

TEST(MemoryFit, TheLargestStepOfSeveralRanksFitsInTheirRing) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  for (const bool by_total : {false, true}) {
    FitInputs in = inputs_of(model, 1000 * 1000 * kGiB, 3);
    in.context_length = 8192;
    in.max_running_requests = 2000;
    if (by_total) in.max_total_tokens = 1'000'000'000;
    const Fit fit = decide_fit(in);
    ASSERT_TRUE(fit.fits);
    const StepShape& step = fit.step;
    const Bytes longest =
        kRingLengthBytes + step_message_bytes(step.step_tokens_max, step.max_running_requests,
                                              fit.kv_blocks, step.logit_rows_max);
    EXPECT_LE(longest, kStepRingBytesDefault);
    EXPECT_GT(longest + kStepWordBytes, kStepRingBytesDefault);
    in.ranks.resize(1);
    in.tp = 1;
    EXPECT_GT(decide_fit(in).kv_blocks, fit.kv_blocks);
  }
}

TEST(MemoryFit, MoreRequestsThanFitAtFullLengthShareTheBlocks) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, 400 * kMiB);
  in.max_running_requests = 64;
  const Fit fit = decide_fit(in);
  EXPECT_TRUE(fit.fits);
  EXPECT_EQ(fit.step.max_running_requests, 64);
  EXPECT_LT(fit.kv_blocks, 64 * blocks_of_tokens(fit.step.context_length));
  EXPECT_GE(fit.kv_blocks, blocks_of_tokens(fit.step.context_length));
}

TEST(MemoryFit, TheLeastIsWhatFitsLast) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, 0);
  const Bytes least = rank_bytes(in, in.ranks[0], least_fit(in));
  EXPECT_TRUE(decide_fit(with_budget(in, least)).fits);
  EXPECT_FALSE(decide_fit(with_budget(in, least - 1)).fits);
}

TEST(MemoryFit, EachRunningRequestGetsItsRowInAStep) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, 4 * kGiB);
  in.chunked_prefill_size = 16;
  EXPECT_EQ(step_shape(in, 100, 40).step_tokens_max, 40);
}

TEST(MemoryFit, AShortModelKeepsItsOwnContext) {
  const ModelSpec model = make_llama_spec({.context_length = 300});
  const Fit fit = decide_fit(inputs_of(model, 4 * kGiB));
  EXPECT_TRUE(fit.fits);
  EXPECT_EQ(fit.step.context_length, 300);
}

TEST(MemoryFit, AFractionFillsWhatItSaysAndSaysWhichEndIsViolated) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, kGiB);
  in.rule = KvRule::static_fraction;
  in.fraction = 500'000;
  const Fit half = decide_fit(in);
  ASSERT_TRUE(half.fits);
  EXPECT_EQ(half.kv_blocks,
            (kGiB / 2 - in.ranks[0].weights) / (kKvBlockTokens * in.ranks[0].kv_token_bytes));
  in.fraction = 50'000;
  EXPECT_FALSE(decide_fit(in).holds_one);
  EXPECT_TRUE(decide_fit(in).is_within);
  in.fraction = 999'000;
  EXPECT_TRUE(decide_fit(in).holds_one);
  EXPECT_FALSE(decide_fit(in).is_within);
}

TEST(MemoryFit, KvInBytesIsTakenAsGiven) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  FitInputs in = inputs_of(model, 4 * kGiB);
  in.rule = KvRule::bytes;
  in.kv_bytes = kGiB + 1;
  const Fit fit = decide_fit(in);
  ASSERT_TRUE(fit.fits);
  EXPECT_EQ(fit.kv_blocks, kGiB / (kKvBlockTokens * in.ranks[0].kv_token_bytes));
}

// vLLM asks CUDA for the total, which is less than the driver's.
TEST(MemoryFit, AUtilizationIsOfWhatCudaSays) {
  Machine machine = test_machine(64 * kGiB);
  Device device;
  device.memory_total = 100 * kGiB;
  device.memory_free = 98 * kGiB;
  machine.devices = {device};
  const ModelSpec model = *golden_model("llama-8b");
  const auto kv = [&] {
    const Result<MemoryPlan> plan = plan_memory(
        machine, model, test_options({"--gpu-memory-utilization=0.9", "--assume=weights=16GiB"}));
    EXPECT_TRUE(plan && !plan->refusal);
    return plan ? plan->kv.bytes : 0;
  };
  const Bytes of_driver = kv();
  machine.devices.front().cuda_total = 98 * kGiB;
  const Bytes less = of_driver - kv();
  EXPECT_NEAR(static_cast<double>(less), 1.8 * kGiB, 8.0 * kMiB);
}

TEST(Search, FindsTheEndOfARange) {
  EXPECT_EQ(largest_that(0, 100, [](std::int64_t x) { return x <= 37; }), 37);
  EXPECT_EQ(largest_that(0, 100, [](std::int64_t) { return true; }), 100);
  EXPECT_EQ(largest_that(5, 100, [](std::int64_t) { return false; }), 5);
}

}  // namespace
}  // namespace plimsoll
