#include "shared/generation/log_launch.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "shared/memory/foreign_log/log_file.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

ForeignLog golden(const std::string& name) {
  const auto log = read_foreign_log(golden_path("logs/" + name));
  EXPECT_TRUE(log) << (log ? "" : log.error().message);
  return log ? *log : ForeignLog{};
}

TEST(LogLaunch, OfTheStorysTwoLogsTheFractionComesFirst) {
  const ForeignLog working = golden("sglang-working.log");
  const ForeignLog failing = golden("sglang-failing.log");
  const LaunchFacts before = launch_of_log(working, "working.log");
  const LaunchFacts after = launch_of_log(failing, "failing.log");
  const auto found = compare_launches(before, after, judge_of_logs(&working, &failing));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].name, "mem-fraction-static");
  EXPECT_EQ(found[0].suspicion, 1.0);
  const std::string text = launch_diff_text(before, after, found);
  EXPECT_NE(
      text.find("  mem-fraction-static 0.88 (auto, from that log) -> 0.55 (flag): KV 10.43 GiB -> "
                "-20.59 GiB\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(found[1].name, "cuda-graph-max-bs");
  EXPECT_NE(found[1].why.find("3.05 GiB with 512"), std::string::npos) << found[1].why;
  EXPECT_LT(std::ranges::count(text, '\n'), 30);
}

TEST(LogLaunch, FromTheFailureToWhatWorkedItComesFirstToo) {
  const ForeignLog working = golden("sglang-working.log");
  const ForeignLog failing = golden("sglang-failing.log");
  const auto found = compare_launches(launch_of_log(failing, "a"), launch_of_log(working, "b"),
                                      judge_of_logs(&failing, &working));
  EXPECT_EQ(found[0].name, "mem-fraction-static");
  EXPECT_EQ(found[0].why, "KV -20.59 GiB -> 10.43 GiB");
}

TEST(LogLaunch, WhatOnlyOneLogSaysIsOfNoWeight) {
  const ForeignLog a = golden("vllm-0.29-served.log");
  const ForeignLog b = golden("vllm-0.20-no-kv.log");
  for (const Difference& difference :
       compare_launches(launch_of_log(a, "a"), launch_of_log(b, "b"), judge_of_logs(&a, &b))) {
    EXPECT_TRUE(difference.name != "free before weights" || difference.suspicion < 0.1);
    EXPECT_NE(difference.name, "enforce-eager");  // unset there, and not said here
  }
}

TEST(LogLaunch, OneLogsFiguresServeWhereTheOtherIsNoLog) {
  const ForeignLog failing = golden("sglang-failing.log");
  const LaunchJudge judge = judge_of_logs(nullptr, &failing);
  Difference difference{.kind = DifferenceKind::option, .name = "mem_fraction_static"};
  difference.before = "0.88";
  difference.after = "0.55";
  const auto reason = judge(difference);
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->text, "KV 10.43 GiB -> -20.59 GiB, with what was free and taken in that log");
  difference.after = "auto";
  EXPECT_FALSE(judge(difference));
}

TEST(LogLaunch, VllmsUtilizationMovesKvByItsShareOfTheDevice) {
  const ForeignLog log = golden("vllm-0.29-served.log");
  const LaunchJudge judge = judge_of_logs(&log, nullptr);
  Difference difference{.kind = DifferenceKind::option, .name = "gpu-memory-utilization"};
  difference.before = "0.92";
  difference.after = "0.72";
  const auto reason = judge(difference);
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->text, "KV 3.01 GiB -> -94.2 MiB, with what was free and taken in that log");
  EXPECT_EQ(reason->suspicion, 1.0);
}

TEST(LogLaunch, LessFreeMemoryBeforeLoadingIsASuspect) {
  const ForeignLog working = golden("sglang-working.log");
  ForeignLog crowded = working;
  for (ForeignRank& rank : crowded.ranks) rank.base = 22 * kGiB;
  const auto found = compare_launches(launch_of_log(working, "a"), launch_of_log(crowded, "b"),
                                      judge_of_logs(&working, &crowded));
  EXPECT_EQ(found[0].name, "free before weights");
  EXPECT_NE(found[0].why.find("72.00 GiB less"), std::string::npos);
  for (ForeignRank& rank : crowded.ranks) rank.base = *working.ranks[0].base - kMiB * 20;
  const auto same = compare_launches(launch_of_log(working, "a"), launch_of_log(crowded, "b"),
                                     judge_of_logs(&working, &crowded));
  ASSERT_FALSE(same.empty());
  EXPECT_LT(same[0].suspicion, 0.1);
}

TEST(LogLaunch, OfModelsOfOtherSizesItIsSaidWhoseFiguresServe) {
  const ForeignLog working = golden("sglang-working.log");
  ForeignLog other = working;
  other.fraction = 0.7;
  for (ForeignRank& rank : other.ranks) rank.weights = 30 * kGiB;
  Difference difference{.kind = DifferenceKind::option, .name = "mem-fraction-static"};
  difference.before = "0.88";
  difference.after = "0.7";
  const auto reason = judge_of_logs(&working, &other)(difference);
  ASSERT_TRUE(reason);
  EXPECT_NE(reason->text.find("in the first log"), std::string::npos) << reason->text;
}

LaunchFacts generation_of_ours(double weights) {
  return {.label = "generation 5",
          .outcome = "serving",
          .options = {{"mem-fraction-static", "0.880", "flag"},
                      {"model", "/models/kimi/config.json", "flag"},
                      {"machine", "8x-rtx-pro-6000.json", "flag"}},
          .environment = {},
          .figures = {{"weights of rank 0", weights - 1.0 * kGiB, "bytes"},
                      {"vision of rank 0", 1.0 * kGiB, "bytes"},
                      {"kv of rank 0", 10.77 * kGiB, "bytes"}}};
}

TEST(LogLaunch, BesideAGenerationOfOursKvIsWhatEachOfThemHad) {
  const ForeignLog failing = golden("sglang-failing.log");
  LaunchFacts after = launch_of_log(failing, "failing.log");
  name_figures_like_ours(after);
  const LaunchFacts ours = generation_of_ours(72.0 * kGiB);
  const auto found = compare_launches(ours, after, judge_of_logs(nullptr, &failing, &ours));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].name, "mem-fraction-static");
  EXPECT_EQ(found[0].why, "KV 10.77 GiB -> -20.59 GiB");
  const auto of = [&](std::string_view name) {
    return *std::ranges::find(found, name, &Difference::name);
  };
  EXPECT_LT(of("machine").suspicion, 0.1) << "no log names one";
  EXPECT_EQ(of("model").why, "another name; weights of the same size");
  EXPECT_EQ(of("kv of rank 0").after, "-20.59 GiB");
  const auto back = compare_launches(after, ours, judge_of_logs(&failing, nullptr, &ours));
  EXPECT_EQ(back[0].why, "KV -20.59 GiB -> 10.77 GiB");
}

TEST(LogLaunch, BesideAnotherModelOfOursTheLogsFiguresServe) {
  const ForeignLog failing = golden("sglang-failing.log");
  const LaunchFacts ours = generation_of_ours(15.0 * kGiB);
  const auto found = compare_launches(ours, launch_of_log(failing, "failing.log"),
                                      judge_of_logs(nullptr, &failing, &ours));
  const auto of = [&](std::string_view name) {
    return *std::ranges::find(found, name, &Difference::name);
  };
  EXPECT_NE(of("mem-fraction-static").why.find("in that log"), std::string::npos);
  EXPECT_NE(of("model").why.find("another model"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
