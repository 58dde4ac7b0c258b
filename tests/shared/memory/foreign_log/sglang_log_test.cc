// SGLang's wordings, by version; the reports of whole logs are golden (log_report_test.cc).
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

TEST(SglangLog, TheStoryIsRead) {
  const ForeignLog log = golden("sglang-working.log");
  EXPECT_EQ(log.server, ForeignServer::sglang);
  EXPECT_EQ(log.end, ForeignEnd::served);
  ASSERT_EQ(log.ranks.size(), 8U);
  const ForeignRank& rank = log.ranks[7];
  EXPECT_EQ(rank.name, "TP7");
  EXPECT_EQ(rank.base, gib(94));
  EXPECT_EQ(rank.weights, gib(72.29));
  EXPECT_EQ(rank.left, gib(21.71));
  EXPECT_EQ(rank.kv, gib(10.42));
  EXPECT_EQ(rank.kv_tokens, 159'215);
  EXPECT_EQ(rank.after_pool, gib(11.22));
  EXPECT_EQ(rank.graphs, gib(3.05));
  EXPECT_EQ(rank.spare, gib(7.56));
  EXPECT_EQ(log.context, 262'144);
  EXPECT_EQ(log.running_max, 2048);
  EXPECT_EQ(log.model_type, "KimiK25ForConditionalGeneration");
  EXPECT_EQ(log.arg("cuda-graph-max-bs")->value, "512");
  EXPECT_EQ(log.arg("tp")->written, "tp_size");
}

TEST(SglangLog, TheOldestRanksAreDevices) {
  const ForeignLog log = golden("sglang-0.3-gpu-id.log");
  EXPECT_EQ(log.ranks.size(), 2U);
  EXPECT_EQ(log.ranks[1].name, "TP1");
  EXPECT_EQ(log.ranks[1].weights, gib(23.35) - gib(15.95));
  EXPECT_EQ(log.end, ForeignEnd::unknown);
}

TEST(SglangLog, ADraftModelComesAfterTheFirstAndCapturesAddUp) {
  const ForeignLog log = golden("sglang-0.5-captures-served.log");
  ASSERT_EQ(log.ranks.size(), 1U);
  EXPECT_EQ(log.ranks[0].weights, gib(82.97));
  EXPECT_EQ(log.ranks[0].draft, gib(2.81));
  EXPECT_EQ(log.ranks[0].left, gib(26));
  EXPECT_EQ(log.ranks[0].base, gib(111.97));
  EXPECT_EQ(log.ranks[0].kv, gib(7));
  EXPECT_EQ(log.ranks[0].state, gib(0.05) + gib(0.45));
  EXPECT_EQ(log.ranks[0].graphs, gib(1) + gib(0.25) + gib(0.05));
  EXPECT_EQ(log.model_type, "ExampleForConditionalGeneration");
}

TEST(SglangLog, WhereItEndedIsToldByWhatItWasDoing) {
  const std::pair<const char*, ForeignEnd> cases[] = {
      {"sglang-failing.log", ForeignEnd::no_kv},
      {"sglang-0.4-profiling-refused.log", ForeignEnd::no_kv},
      {"sglang-0.5-minimum-named.log", ForeignEnd::no_kv},
      {"sglang-capture-oom.log", ForeignEnd::no_graphs},
      {"sglang-step-oom.log", ForeignEnd::no_step},
      {"sglang-unbalanced.log", ForeignEnd::unbalanced},
      {"sglang-weights-neighbour.log", ForeignEnd::neighbour},
      {"sglang-cut-in-arguments.log", ForeignEnd::unknown}};
  for (const auto& [name, end] : cases) EXPECT_EQ(golden(name).end, end) << name;
}

TEST(SglangLog, ACommandLineSaysWhatWasGiven) {
  const ForeignLog log = golden("sglang-0.5-minimum-named.log");
  EXPECT_EQ(log.arg("mem-fraction-static")->origin, ArgOrigin::given);
  EXPECT_EQ(log.arg("cuda-graph-max-bs")->origin, ArgOrigin::automatic);
}

TEST(SglangLog, PoolsOfSlidingWindowsAreOneSum) {
  const auto log = parse_foreign_log(
      "[2026-01-01 00:00:00] server_args=ServerArgs(tp_size=1)\n"
      "[2026-01-01 00:00:01] KV Cache is allocated. #tokens: 171008, K size: 10.00 GB, V size: "
      "10.00 GB\n"
      "[2026-01-01 00:00:01] KV Cache is allocated. #tokens: 213761, K size: 8.00 GB, V size: 8.69 "
      "GB\n"
      "[2026-01-01 00:00:01] SWAKVPool mem usage: 36.69 GB, swa size: 171008, full size: 213761\n");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->ranks[0].kv, gib(36.69));
  EXPECT_EQ(log->ranks[0].kv_tokens, 213'761);
}

}  // namespace
}  // namespace plimsoll
