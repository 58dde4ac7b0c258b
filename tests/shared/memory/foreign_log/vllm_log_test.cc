// vLLM's wordings, by version; the reports of whole logs are golden (log_report_test.cc).
#include <cmath>

#include <gtest/gtest.h>

#include "shared/memory/foreign_log/log_file.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Bytes gib(double value) {
  return static_cast<Bytes>(std::llround(value * static_cast<double>(kGiB)));
}

ForeignLog golden(const std::string& name) {
  const auto log = read_foreign_log(golden_path("logs/" + name));
  EXPECT_TRUE(log) << (log ? "" : log.error().message);
  return log ? *log : ForeignLog{};
}

TEST(VllmLog, TheNewestNamesWhatItUsed) {
  const ForeignLog log = golden("vllm-0.29-served.log");
  EXPECT_EQ(log.server, ForeignServer::vllm);
  EXPECT_EQ(log.version, "0.29.0");
  EXPECT_EQ(log.end, ForeignEnd::served);
  EXPECT_EQ(log.ranks[0].weights, gib(10.24));
  EXPECT_EQ(log.ranks[0].kv, gib(3.01));
  EXPECT_EQ(log.ranks[0].graphs, gib(0.04));
  EXPECT_EQ(log.kv_tokens, 172'032);
  EXPECT_EQ(log.total, gib(15.51));
  EXPECT_EQ(log.free_at_start, gib(15.28));
  EXPECT_EQ(log.fraction, 0.92);
  EXPECT_EQ(log.budget, gib(14.27));
  EXPECT_EQ(log.concurrency, 1.0);
  EXPECT_EQ(log.arg("max-running-requests")->origin, ArgOrigin::given);
  EXPECT_EQ(log.arg("tp")->value, "1");  // of the resolved configuration
}

TEST(VllmLog, TheOldestCountsBlocks) {
  const ForeignLog log = golden("vllm-0.2-blocks.log");
  EXPECT_EQ(log.kv_tokens, 865 * 16);
  EXPECT_EQ(log.end, ForeignEnd::served);
  EXPECT_EQ(log.fraction, 0.9);
}

TEST(VllmLog, TheOlderEngineAccountsInSentences) {
  const ForeignLog log = golden("vllm-0.6-short-kv.log");
  EXPECT_EQ(log.version, "0.6.4.post1");
  EXPECT_EQ(log.total, gib(44.39));
  EXPECT_EQ(log.budget, gib(40.84));
  EXPECT_EQ(log.other_use, gib(0.36));
  EXPECT_EQ(log.activation, gib(4.48));
  EXPECT_EQ(log.tightest()->kv, gib(5.29));
  EXPECT_EQ(log.kv_tokens, 43'328);
  EXPECT_EQ(log.context, 56'000);
  EXPECT_EQ(log.end, ForeignEnd::short_kv);
}

TEST(VllmLog, KvBelowZeroIsRead) {
  const ForeignLog log = golden("vllm-0.20-no-kv.log");
  EXPECT_EQ(log.end, ForeignEnd::no_kv);
  EXPECT_EQ(log.kv_rule(), gib(-0.19));
  EXPECT_EQ(log.graphs_estimate, gib(0.55));
}

TEST(VllmLog, WhatOneRequestNeedsIsRead) {
  const ForeignLog log = golden("vllm-0.8-short-kv.log");
  EXPECT_EQ(log.kv_needed, gib(2));
  EXPECT_EQ(log.kv_rule(), gib(0.78));
  EXPECT_EQ(log.context, 32'768);
  const auto newer = parse_foreign_log(
      "INFO non-default args: {'model': 'x'}\n"
      "ValueError: To serve at least one request with the model's max seq len (700160), 6.11 GiB "
      "KV "
      "cache is needed, which is larger than the available KV cache memory (5.17 GiB). Based on "
      "the "
      "available memory, the estimated maximum model length is 566784.\n");
  ASSERT_TRUE(newer);
  EXPECT_EQ(newer->kv_needed, gib(6.11));
  EXPECT_EQ(newer->context_max, 566'784);
}

TEST(VllmLog, WhereItEndedIsToldByWhatItSays) {
  EXPECT_EQ(golden("vllm-0.26-neighbour.log").end, ForeignEnd::neighbour);
  EXPECT_EQ(golden("vllm-0.26-neighbour.log").free_at_start, gib(3.25));
  EXPECT_EQ(golden("vllm-0.15-sampler-oom.log").end, ForeignEnd::no_graphs);
}

TEST(VllmLog, AnOomBeforeKvIsSizedIsTheTrialStep) {
  const auto log = parse_foreign_log(
      "INFO non-default args: {'model': 'x', 'max_num_batched_tokens': 65536}\n"
      "INFO Model loading took 10.00 GiB memory and 2.0 seconds\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.\n");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->end, ForeignEnd::no_profile);
}

TEST(VllmLog, SecondsAreNoBytes) {
  const auto log = parse_foreign_log(
      "INFO non-default args: {'model': 'x'}\nINFO Model loading took 22.5 seconds\n");
  ASSERT_TRUE(log);
  EXPECT_TRUE(log->ranks.empty());
}

// The engine sizes KV for workers that do not say it: what fails then is no trial step.
TEST(VllmLog, AWorkerThatRunsOutBehindTheEnginesKvIsInItsCaptures) {
  const ForeignLog log = golden("vllm-0.8-worker-ranks.log");
  EXPECT_EQ(log.end, ForeignEnd::no_graphs);
  EXPECT_EQ(log.end_rank, "TP2");
  EXPECT_EQ(log.ranks.size(), 4U);
  EXPECT_EQ(log.version, "0.8.5.post1");
}

TEST(VllmLog, UsageIsReadInEveryOrderOfItsWords) {
  const ForeignLog cuda = golden("vllm-0.18-usage-by-weight.log");
  ASSERT_EQ(cuda.ranks.size(), 1U);
  EXPECT_EQ(format_bytes(*cuda.ranks[0].weights), "60.20 GiB");
  EXPECT_EQ(format_bytes(*cuda.activation), "5.60 GiB");
  EXPECT_EQ(format_bytes(*cuda.ranks[0].graphs), "655.4 MiB");
  const ForeignLog npu = golden("vllm-ascend-usage.log");
  EXPECT_EQ(format_bytes(*npu.ranks[0].weights), "1.14 GiB");
  EXPECT_EQ(format_bytes(*npu.ranks[0].kv), "53.61 GiB");
}

}  // namespace
}  // namespace plimsoll
