// The plan's rows against what the code that fills them asks for: the plan restates formulas of
// kernels and worker, which it cannot include.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"
#include "shared/memory/collective_bytes.h"
#include "shared/memory/memory_plan.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "worker/graph/decoder.h"
#include "worker/graph/rope.h"

namespace plimsoll {
namespace {

struct Case {
  const char* name;
  ModelSpec model;
  std::vector<std::string> flags;
};

std::vector<Case> cases() {
  const ModelSpec small = make_llama_spec(smollm2_shape());
  const ModelSpec large = make_llama_spec(llama3_8b_shape());
  std::vector<Case> all;
  for (const char* tp : {"--tp=1", "--tp=2", "--tp=3"}) {
    for (const char* threads : {"--threads=1", "--threads=7"}) {
      all.push_back({"small", small, {tp, threads}});
      all.push_back({"small, short", small, {tp, threads, "--context-length=100"}});
      all.push_back({"small, one row", small, {tp, threads, "--chunked-prefill-size=1"}});
    }
  }
  all.push_back({"large", large, {"--tp=8", "--context-length=131072"}});
  all.push_back({"large, wide steps", large, {"--tp=2", "--chunked-prefill-size=4096"}});
  return all;
}

// At least what is asked for, and at most an eighth (or a few pages) more.
void expect_covers(Bytes planned, Bytes asked, const char* what) {
  EXPECT_GE(planned, asked) << what;
  EXPECT_LE(planned, asked + asked / 8 + 64 * kKiB) << what;
}

TEST(PlanAgreement, EachRowIsWhatTheCodeAsksFor) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::string(c.name) + " " + c.flags.front() + " " + c.flags.back());
    const OptionSet options = test_options(c.flags);
    const Result<MemoryPlan> plan = plan_memory(test_machine(256 * kGiB, 8), c.model, options);
    ASSERT_TRUE(plan && !plan->refusal);
    const Result<ShardPlan> shards = plan_shards(c.model, plan->tp);
    ASSERT_TRUE(shards);
    const DecoderLimits limits{.rows_max = plan->decisions.step_tokens_max,
                               .logit_rows_max = plan->decisions.logit_rows_max,
                               .context_length = plan->decisions.context_length};
    for (const RankPlan& rank : plan->ranks) {
      const DecoderBuffers shapes =
          decoder_buffer_shapes(c.model, *shards, static_cast<int>(rank.rank), limits);
      EXPECT_EQ(rank.bytes(Term::weights), rank_weights(c.model, rank.shard).bytes());
      EXPECT_EQ(rank.bytes(Term::activations), activation_bytes(shapes));
      EXPECT_EQ(rank.bytes(Term::logits), logit_bytes(shapes));
      EXPECT_GE(rank.bytes(Term::tables), rope_table_bytes(c.model, limits.context_length));
      for (const Activations activations : {Activations::int8, Activations::f32}) {
        const auto backend = make_cpu_backend({.threads = static_cast<int>(rank.threads),
                                               .cpus = {},
                                               .spin = false,
                                               .path = CpuPath::scalar,
                                               .activations = activations});
        ASSERT_TRUE(backend);
        expect_covers(rank.bytes(Term::workspace),
                      (*backend)->workspace_bytes(backend_limits(c.model, rank.shard, limits)),
                      "workspace");
      }
    }
  }
}

TEST(PlanAgreement, OnTheHostExecutorRowsAreWhatTheCudaBackendAsksFor) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  for (const char* flag :
       {"--context-length=100", "--context-length=8192", "--chunked-prefill-size=1"}) {
    SCOPED_TRACE(flag);
    const OptionSet options = test_options({"--devices=cuda:host", flag});
    const Result<MemoryPlan> plan = plan_memory(test_machine(256 * kGiB, 2), model, options);
    ASSERT_TRUE(plan && !plan->refusal);
    const Result<ShardPlan> shards = plan_shards(model, 1);
    ASSERT_TRUE(shards);
    const DecoderLimits limits{.rows_max = plan->decisions.step_tokens_max,
                               .logit_rows_max = plan->decisions.logit_rows_max,
                               .context_length = plan->decisions.context_length};
    const RankPlan& rank = plan->ranks.front();
    const auto backend = make_cuda_backend(cuda::make_host_runtime({.memory = 0}));
    expect_covers(rank.bytes(Term::workspace),
                  backend->workspace_bytes(backend_limits(model, rank.shard, limits)), "workspace");
    EXPECT_EQ(rank.bytes(Term::logits),
              logit_bytes(decoder_buffer_shapes(model, *shards, 0, limits)));
  }
}

TEST(PlanAgreement, OnAGpuRowsAreWhatTheCudaBackendAsksForInTheDriversPieces) {
  Machine machine = test_machine(256 * kGiB, 2);
  Device device;
  device.name = "NVIDIA H200";
  device.uuid = "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1";
  device.memory_total = 141 * kGiB;
  device.memory_free = 140 * kGiB;
  device.compute_major = 9;
  device.multiprocessors = 132;
  machine.devices.assign(4, device);
  const struct {
    ModelSpec model;
    std::int64_t tp;
  } launches[] = {{make_llama_spec(smollm2_shape()), 1},
                  {make_llama_spec(smollm2_shape()), 2},
                  {make_llama_spec(llama3_8b_shape()), 1},
                  {make_llama_spec(llama3_8b_shape()), 4}};
  for (const auto& [model, tp] : launches) {
    SCOPED_TRACE(fmt::format("{} over {}", model.hidden, tp));
    const OptionSet options =
        test_options({"--devices=cuda", "--max-running-requests=64", fmt::format("--tp={}", tp)});
    const Result<MemoryPlan> plan = plan_memory(machine, model, options);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_FALSE(plan->refusal) << plan->refusal->message;
    EXPECT_EQ(plan->decisions.kv_type, KvType::f16);
    EXPECT_EQ(plan->decisions.cuda_graph_max_bs, 64);
    const Result<ShardPlan> shards = plan_shards(model, tp);
    ASSERT_TRUE(shards);
    const DecoderLimits limits{.rows_max = plan->decisions.step_tokens_max,
                               .logit_rows_max = plan->decisions.logit_rows_max,
                               .context_length = plan->decisions.context_length};
    ASSERT_EQ(std::ssize(plan->ranks), tp);
    for (const RankPlan& rank : plan->ranks) {
      EXPECT_EQ(rank.device_uuid, device.uuid);
      DecoderBuffers shapes =
          decoder_buffer_shapes(model, *shards, static_cast<int>(rank.rank), limits);
      shapes.all_logits = {};  // in the host's memory, where the sampler is
      const auto in_pieces = [](Bytes bytes) { return round_up(bytes, 2 * kMiB); };
      EXPECT_EQ(rank.bytes(Term::weights), in_pieces(rank_weights(model, rank.shard).bytes()));
      EXPECT_EQ(rank.bytes(Term::activations), in_pieces(activation_bytes(shapes)));
      EXPECT_EQ(rank.bytes(Term::logits), in_pieces(logit_bytes(shapes)));
      EXPECT_GE(rank.bytes(Term::tables), rope_table_bytes(model, limits.context_length));
      EXPECT_EQ(rank.bytes(Term::collective), tp == 1 ? 0 : kIpcBytes + 2 * kMiB);
      const auto backend = make_cuda_backend(cuda::make_host_runtime({.memory = 0}));
      expect_covers(rank.bytes(Term::workspace),
                    in_pieces(backend->workspace_bytes(backend_limits(model, rank.shard, limits))),
                    "workspace");
    }
  }
}

}  // namespace
}  // namespace plimsoll
