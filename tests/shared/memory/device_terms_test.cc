#include "shared/memory/device_terms.h"

#include <gtest/gtest.h>

#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

Device device_of(int multiprocessors, int major = 9) {
  Device device;
  device.memory_total = 96 * kGiB;
  device.compute_major = major;
  device.multiprocessors = multiprocessors;
  return device;
}

TEST(DeviceTerms, ContextsCoverWhatFourCardsMeasured) {
  // 4060 Ti, 3090, RTX 6000 Ada, RTX PRO 6000.
  const std::pair<int, Bytes> cards[] = {{34, 107}, {82, 256}, {142, 426}, {188, 555}};
  for (const auto& [multiprocessors, mib] : cards) {
    const Bytes planned = context_bytes(device_of(multiprocessors));
    EXPECT_GE(planned, mib * kMiB) << multiprocessors;
    EXPECT_LE(planned, mib * kMiB * 11 / 10) << multiprocessors;
  }
  Device measured = device_of(188);
  measured.context = 555 * kMiB;
  EXPECT_EQ(context_bytes(measured), 555 * kMiB);
}

TEST(DeviceTerms, TheExpertBufferIsExact) {
  EXPECT_EQ(ep_buffer_bytes(384, 7168, 1024), 22'900'903'040);  // as a driver reported it
  EXPECT_EQ(ep_buffer_bytes(384, 7168, 2) - ep_buffer_bytes(384, 7168, 1), 22'364'160);
  // 19.20 GiB were free: 921 tokens would have fitted.
  const auto free = static_cast<Bytes>(19.20 * static_cast<double>(kGiB));
  EXPECT_LE(ep_buffer_bytes(384, 7168, 921), free);
  EXPECT_GT(ep_buffer_bytes(384, 7168, 922), free);
}

TEST(DeviceTerms, LogitsCountBf16AndTwoCopiesInF32) {
  EXPECT_EQ(512 * logit_row_bytes(163'840), 512 * 163'840 * (2 + 4 + 4));
}

TEST(DeviceTerms, AllToAllIsTheFormulaAndAQuarterMore) {
  const DeviceSetting ring{.tp = 8, .ep = 1, .ep_dispatch_tokens = 128, .link = DeviceLink::nvlink};
  DeviceSetting experts = ring;
  experts.ep = 8;
  const Device device = device_of(132);
  EXPECT_EQ(nccl_bytes(device, experts) - nccl_bytes(device, ring), 2688 * kMiB * 5 / 4);
  // NVLS: 8 heads x 16 channels x 2 MiB, only behind a switch.
  EXPECT_EQ(nccl_bytes(device, ring) - nccl_bytes(device_of(132, 8), ring), 256 * kMiB);
}

TEST(DeviceTerms, CustomAllReduceRunsOnFewRanks) {
  EXPECT_EQ(custom_all_reduce_bytes(8), 24 * kMiB);
  EXPECT_EQ(custom_all_reduce_bytes(1), 0);
  EXPECT_EQ(custom_all_reduce_bytes(3), 0);
  EXPECT_EQ(custom_all_reduce_bytes(16), 0);
}

TEST(DeviceTerms, RanksWithOurKernelsHaveOneBufferForSumsOrNcclsOfEightChannels) {
  ModelSpec model;
  model.hidden = 256;
  model.ffn = 512;
  model.layers = 2;
  model.vocab = 1000;
  const Device device = device_of(132);
  RankShape rank;
  rank.device = &device;
  rank.on_cuda = true;
  rank.shard.heads = {0, 4};
  rank.shard.kv_heads = {0, 1};
  rank.shard.ffn = {0, 512};
  const StepShape step{.context_length = 1000,
                       .max_running_requests = 1,
                       .step_tokens_max = 64,
                       .logit_rows_max = 1};
  const auto collective = [&](const DeviceSetting& setting) {
    return device_term_bytes(
        {.model = model, .rank = rank, .step = step, .setting = setting})[Term::collective];
  };
  EXPECT_EQ(collective({.tp = 1}), 0);
  EXPECT_EQ(collective({.tp = 2}), 26 * kMiB);
  EXPECT_EQ(collective({.tp = 2, .by_nccl = true}), 8 * 2 * 12 * kMiB);
  EXPECT_EQ(collective({.tp = 8, .link = DeviceLink::nvlink, .by_nccl = true}), 8 * 3 * 12 * kMiB);
}

TEST(DeviceTerms, MoreGraphsTakeMore) {
  EXPECT_EQ(graph_bytes(61, 0, 8), 0);
  EXPECT_EQ(graph_bytes(61, 512, 1) - graph_bytes(61, 128, 1),
            32 * 61 * 448 * kKiB + 384 * 2 * kMiB);
  // Two all-reduces of each layer in each of 52 captures.
  EXPECT_EQ(registered_addresses(61, 512, 8), 6344);
  EXPECT_EQ(graph_bytes(61, 512, 8) - graph_bytes(61, 512, 1), 6344 * 64);
  EXPECT_EQ(registered_addresses(61, 512, 16), 0);
}

TEST(DeviceTerms, ActivationsAreThePeakOfAllChunksThatARequestMayEndWith) {
  ModelSpec model;  // whose expanded prefix is wider than its stream
  model.hidden = 256;
  model.ffn = 512;
  model.layers = 2;
  model.vocab = 1000;
  model.latent = {.q_rank = 0, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  const Device device = device_of(132);
  RankShape rank;
  rank.device = &device;
  rank.shard.heads = {0, 64};
  rank.shard.kv_heads = {0, 1};
  rank.shard.ffn = {0, 512};
  const DeviceSetting setting;
  Bytes before = 0;
  for (Tokens context = 1000; context < 40'000; context += 1371) {
    const auto activations = [&](Tokens chunk) {
      const StepShape step{.context_length = context,
                           .max_running_requests = 1,
                           .step_tokens_max = chunk,
                           .logit_rows_max = 1};
      return device_term_bytes(
          {.model = model, .rank = rank, .step = step, .setting = setting})[Term::activations];
    };
    const Bytes whole = activations(8192);
    for (Tokens chunk = 1; chunk <= 8192; chunk += 509) EXPECT_GE(whole, activations(chunk));
    EXPECT_GE(whole, before) << "a longer context needs no less";
    before = whole;
  }
}

TEST(DeviceTerms, DefaultsGoByTheDevicesMemory) {
  EXPECT_EQ(default_step_tokens(16 * kGiB), 2048);
  EXPECT_EQ(default_step_tokens(80 * kGiB), 8192);
  EXPECT_EQ(default_step_tokens(180 * kGiB), 16'384);
  EXPECT_EQ(default_graph_batch(24 * kGiB, 1), 48);
  EXPECT_EQ(default_graph_batch(24 * kGiB, 4), 160);
  EXPECT_EQ(default_graph_batch(96 * kGiB, 8), 512);
}

TEST(DeviceTerms, EveryTermThatTakesBytesHasAFormula) {
  const Result<ModelSpec> model = golden_model("kimi-k2.5");
  ASSERT_TRUE(model);
  const Device device = device_of(188);
  RankShape rank;
  rank.device = &device;
  rank.shard.heads = {0, 8};
  rank.shard.kv_heads = {0, 1};
  rank.weights = 70 * kGiB;
  rank.absorbed = rank.vision = rank.draft = kGiB;
  const StepShape step{.context_length = 20'000,
                       .max_running_requests = 16,
                       .step_tokens_max = 8192,
                       .logit_rows_max = 64,
                       .cuda_graph_max_bs = 16};
  const DeviceSetting setting{.tp = 8, .ep = 8, .ep_dispatch_tokens = 128};
  const DeviceTermInputs in{.model = *model, .rank = rank, .step = step, .setting = setting};
  const TermBytes bytes = device_term_bytes(in);
  for (std::size_t i = 0; i < kTermCount; ++i) {
    const auto term = static_cast<Term>(i);
    if (term == Term::kv || term == Term::process) continue;
    EXPECT_GT(bytes[term], 0) << term_name(term);
    EXPECT_FALSE(device_term_formula(in, term).empty()) << term_name(term);
  }
  rank.draft_of_all = 3 * kGiB;
  rank.draft_ranks = 4;
  EXPECT_EQ(device_term_formula(in, Term::draft),
            "this rank's part of the draft model's 3.00 GiB over 4 ranks");
  EXPECT_EQ(device_term_trust(in, Term::graphs), Trust::assumed);
  EXPECT_EQ(device_term_trust(in, Term::weights), Trust::computed);
}

}  // namespace
}  // namespace plimsoll
