#include "shared/memory/foreign_log/sglang_rules.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Bytes gib(double value) { return static_cast<Bytes>(value * static_cast<double>(kGiB)); }

std::string gib_text(Bytes bytes) { return format_bytes(bytes); }

ForeignLog launch(Bytes base, const std::string& tp, const std::string& graphs) {
  ForeignLog log;
  log.args = {{"tp", "tp_size", tp}, {"cuda-graph-max-bs", "cuda_graph_max_bs", graphs}};
  log.ranks.push_back({.name = "TP0", .base = base});
  return log;
}

TEST(SglangRules, TheStorysArithmeticHoldsToTheLastDigit) {
  EXPECT_EQ(gib_text(sglang_kv(gib(94), gib(21.71), 0.88)), "10.43 GiB");
  EXPECT_EQ(gib_text(sglang_kv(gib(94), gib(21.71), 0.55)), "-20.59 GiB");
  EXPECT_EQ(gib_text(sglang_kv(gib(94), gib(21.71), 0.50)), "-25.29 GiB");
  EXPECT_EQ(sglang_kv(gib(94), gib(21.71), 0.770) / 70'272, 1'375);
}

TEST(SglangRules, TheSmallestFractionIsExactOnBothSides) {
  EXPECT_EQ(sglang_fraction_for(gib(94), gib(21.71), 1), 0.770);
  EXPECT_EQ(sglang_fraction_for(gib(94), gib(21.71), 4096 * 70'272), 0.772);
  EXPECT_LE(sglang_kv(gib(94), gib(21.71), 0.769), 0);
  EXPECT_GT(sglang_kv(gib(94), gib(21.71), 0.770), 0);
  EXPECT_EQ(sglang_fraction_for(gib(137.90), gib(12.25), 1), 0.912);
  EXPECT_EQ(sglang_fraction_for(gib(137.90), gib(12.25 - 3.07), 1), 0.934);
  for (int left = 1; left < 100; left += 7) {
    const Bytes rest = gib(left * 0.937);
    const auto fraction = sglang_fraction_for(gib(94), rest, 1);
    ASSERT_TRUE(fraction);
    EXPECT_GT(sglang_kv(gib(94), rest, *fraction), 0) << left;
    EXPECT_TRUE(*fraction == 0 || sglang_kv(gib(94), rest, *fraction - 0.001) <= 0) << left;
  }
  EXPECT_FALSE(sglang_fraction_for(gib(94), 0, 1));
  EXPECT_FALSE(sglang_fraction_for(0, 0, 1));
}

TEST(SglangRules, TheReserveGrowsWithRanksStepsAndGraphs) {
  const SglangReserve reserve = sglang_reserve(launch(gib(94), "8", "128"));
  EXPECT_EQ(reserve.bytes, (512 + 12'288 + 1'024 + 256) * kMiB);
  EXPECT_EQ(reserve.formula, "512 + 1.5 x 8,192 tokens + 1,024 x 8 ranks / 8 + 2 x 128 MiB");
  EXPECT_EQ(sglang_reserve(launch(gib(94), "8", "512")).bytes - reserve.bytes, 768 * kMiB);
  ForeignLog small = launch(gib(94), "1", "8");
  small.args.push_back({"chunked-prefill-size", "chunked_prefill_size", "2048"});
  EXPECT_EQ(sglang_reserve(small).bytes, 10 * kGiB);
}

TEST(SglangRules, WhatTheLogDoesNotNameGoesByTheDevice) {
  ForeignLog log;
  log.ranks.push_back({.name = "", .base = gib(23)});
  const SglangReserve reserve = sglang_reserve(log);
  EXPECT_EQ(reserve.formula, "512 + 1.5 x 4,096 tokens + 1,024 x 1 ranks / 8 + 2 x 48 MiB");
  EXPECT_EQ(reserve.bytes, (512 + 6144 + 128 + 96) * kMiB);
}

TEST(SglangRules, AttentionInDataParallelReservesForEachOfItsGroups) {
  ForeignLog log = launch(gib(138), "8", "512");
  const Bytes without = sglang_reserve(log).bytes;
  log.args.push_back({"dp", "dp_size", "8"});
  EXPECT_EQ(sglang_reserve(log).bytes, without);
  log.args.push_back({"enable-dp-attention", "enable_dp_attention", "True"});
  EXPECT_EQ(sglang_reserve(log).bytes - without, 18'432 * kMiB);  // 4.5 x 512 x 8
}

TEST(SglangRules, ItsOwnFractionIsOfTheDeviceOrOfWhatWasFree) {
  EXPECT_EQ(sglang_auto_fraction(launch(gib(94), "8", "128")), 0.854);
  ForeignLog known = launch(gib(94), "8", "128");
  known.total = 97'871 * kMiB;
  EXPECT_EQ(sglang_auto_fraction(known), 0.856);
  EXPECT_FALSE(sglang_auto_fraction(ForeignLog{}));
  EXPECT_FALSE(sglang_auto_fraction(launch(gib(4), "8", "512")));
}

TEST(SglangRules, FractionsThatItCouldHaveChosenAreTold) {
  const ForeignLog log = launch(gib(94), "8", "128");
  EXPECT_TRUE(may_be_automatic(0.88, log));
  EXPECT_TRUE(may_be_automatic(0.81, log));  // the table of old, at 8 ranks
  EXPECT_TRUE(may_be_automatic(0.851, log));
  EXPECT_FALSE(may_be_automatic(0.55, log));
  EXPECT_FALSE(may_be_automatic(0.85, log));
  EXPECT_FALSE(may_be_automatic(0.9, log));
}

TEST(SglangRules, OriginsOfArguments) {
  ForeignLog log = launch(gib(94), "8", "512");
  log.fraction = 0.55;
  log.args.push_back({"mem-fraction-static", "mem_fraction_static", "0.55"});
  log.args.push_back({"port", "port", "30000"});
  log.args.push_back({"quantization", "quantization", "None"});
  log.args.push_back({"random-seed", "random_seed", "4711"});
  infer_sglang_origins(log);
  EXPECT_EQ(log.arg("tp")->origin, ArgOrigin::given);
  EXPECT_EQ(log.arg("cuda-graph-max-bs")->origin, ArgOrigin::automatic);
  EXPECT_EQ(log.arg("mem-fraction-static")->origin, ArgOrigin::given);
  EXPECT_EQ(log.arg("port")->origin, ArgOrigin::built_in);
  EXPECT_EQ(log.arg("quantization")->origin, ArgOrigin::built_in);
  EXPECT_EQ(log.arg("random-seed")->origin, ArgOrigin::automatic);
}

}  // namespace
}  // namespace plimsoll
