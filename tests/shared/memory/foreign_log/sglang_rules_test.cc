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

TEST(SglangRules, ItsOwnFractionIsOfTheDeviceOrOfWhatWasFree) {
  const auto choice = sglang_choice(launch(gib(94), "8", "128"));
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->fraction, 0.854);
  EXPECT_GT(choice->most, 0.854);
  EXPECT_NE(choice->words.find("512 + 1.5 x 8,192 tokens + 1,024 x 8 ranks / 8 + 2 x 128 MiB"),
            std::string::npos)
      << choice->words;
  ForeignLog known = launch(gib(94), "8", "128");
  known.total = 97'871 * kMiB;
  EXPECT_EQ(sglang_choice(known)->fraction, 0.856);
  EXPECT_FALSE(sglang_choice(ForeignLog{}));
  EXPECT_FALSE(sglang_choice(launch(gib(4), "8", "512")));
}

TEST(SglangRules, WhatIsUnsetIsByTheDevicesMemory) {
  const auto words = [](Bytes base, std::vector<ForeignArg> args) {
    ForeignLog log;
    log.args = std::move(args);
    log.ranks.push_back({.name = "TP0", .base = base});
    return sglang_choice(log)->words;
  };
  EXPECT_NE(words(gib(23), {}).find("1.5 x 4,096 tokens + 1,024 x 1 ranks / 8 + 2 x 48 MiB"),
            std::string::npos)
      << words(gib(23), {});
  EXPECT_NE(words(gib(23), {{"cuda-graph-max-bs", "cuda_graph_max_bs", "None"}}).find("2 x 48"),
            std::string::npos);
  EXPECT_NE(words(gib(23), {{"disable-cuda-graph", "disable_cuda_graph", "True"}}).find("2 x 0"),
            std::string::npos);
  EXPECT_NE(words(gib(44), {{"chunked-prefill-size", "chunked_prefill_size", "-1"}})
                .find("1.5 x 16,384 tokens"),
            std::string::npos);
  EXPECT_NE(words(gib(78), {{"dp", "dp_size", "8"},
                            {"enable-dp-attention", "enable_dp_attention", "True"},
                            {"moe-a2a-backend", "moe_a2a_backend", "deepep"}})
                .find("3 x 256 x 8 + 2,048 MiB"),
            std::string::npos);
  EXPECT_NE(words(gib(23), {{"cuda-graph-max-bs", "cuda_graph_max_bs_decode", "48"}})
                .find("8 x 50 sizes"),
            std::string::npos);
}

TEST(SglangRules, AttentionInDataParallelReservesForEachOfItsGroups) {
  ForeignLog log = launch(gib(138), "8", "512");
  log.args.push_back({"dp", "dp_size", "8"});
  EXPECT_EQ(sglang_choice(log)->words.find("x 512 x 8"), std::string::npos) << "replicas";
  log.args.push_back({"enable-dp-attention", "enable_dp_attention", "True"});
  const std::string words = sglang_choice(log)->words;
  EXPECT_NE(words.find("+ 4.5 x 512 x 8 MiB"), std::string::npos) << words;
  EXPECT_NE(words.find("keeps back 32.50 GiB"), std::string::npos) << words;
}

TEST(SglangRules, DeepEpReservesForItsGraphsAlone) {
  ForeignLog log = launch(gib(138), "8", "128");
  log.args.push_back({"moe-a2a-backend", "moe_a2a_backend", "deepep"});
  EXPECT_NE(sglang_choice(log)->words.find("+ 2,048 MiB"), std::string::npos);
  log.args.push_back({"disable-cuda-graph", "disable_cuda_graph", "True"});
  EXPECT_EQ(sglang_choice(log)->words.find("+ 2,048 MiB"), std::string::npos);
}

TEST(SglangRules, OldVersionsChoseByATable) {
  ForeignLog log = launch(gib(22), "1", "8");
  log.has_fraction_table = true;
  EXPECT_EQ(sglang_choice(log)->fraction, 0.88);
  log = launch(gib(78), "16", "160");
  log.has_fraction_table = true;
  EXPECT_EQ(sglang_choice(log)->fraction, 0.79);
}

TEST(SglangRules, AFractionThatIsNotSaidIsToldByWhatItLeftForKv) {
  ForeignLog log = launch(gib(78.10), "8", "512");
  log.args.push_back({"mem-fraction-static", "mem_fraction_static", "None"});
  infer_sglang_fraction(log);
  EXPECT_FALSE(log.fraction) << "nothing is known of KV";
  log.ranks[0].left = gib(22.60);
  log.ranks[0].kv = gib(7.62);
  infer_sglang_fraction(log);
  EXPECT_EQ(log.fraction, 0.808);
  EXPECT_EQ(log.arg("mem-fraction-static")->value, "0.808");
  infer_sglang_origins(log);
  EXPECT_EQ(log.arg("mem-fraction-static")->origin, ArgOrigin::automatic);
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
