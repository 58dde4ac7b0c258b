#include "shared/memory/foreign_log/log_report.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/memory/foreign_log/log_file.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

ForeignLog golden(const std::string& name) {
  const auto log = read_foreign_log(golden_path("logs/" + name));
  EXPECT_TRUE(log) << (log ? "" : log.error().message);
  return log ? *log : ForeignLog{};
}

std::string report_of(const std::string& name) {
  const ForeignLog log = golden(name);
  return log_report(log, explain_log(log, name));
}

// Every log beside its report: servers, versions and ways to fail.
TEST(LogReport, EveryGoldenLogIsExplainedAsWritten) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("logs"))) {
    if (entry.path().extension() != ".log") continue;
    const std::string name = entry.path().filename().string();
    const auto log = read_foreign_log(entry.path());
    std::string text = log ? log_report(*log, explain_log(*log, name)) : log.error().message;
    if (!log) text = text.substr(text.find("log: ") + 5);  // without where this tree lies
    const std::filesystem::path expected =
        golden_path("logs/" + entry.path().stem().string() + ".txt");
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      ASSERT_TRUE(write_file(expected, text));
    }
    EXPECT_EQ(read_test_file(expected), text)
        << name << ": run with UPDATE_GOLDEN=1 and read the difference";
    EXPECT_LE(std::ranges::count(text, '\n'), 45) << name << " is more than a screen";
    ++count;
  }
  EXPECT_GE(count, 19U);
}

TEST(LogReport, TheFailingStoryHasItsArithmeticToTheLastDigit) {
  const std::string text = report_of("sglang-failing.log");
  EXPECT_NE(text.find("left for KV            -20.59 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("raise --mem-fraction-static to 0.770 or more"), std::string::npos) << text;
  EXPECT_NE(text.find("said by 8 ranks"), std::string::npos) << text;
}

TEST(LogReport, WhatAnotherLogKnowsOfTheModelGivesTokensAndTheWindow) {
  const ForeignLog failing = golden("sglang-failing.log");
  const LogExplanation explanation =
      explain_log(failing, "x", {.kv_bytes_per_token = 70'272.0, .context = 262'144});
  EXPECT_EQ(explanation.window.any_kv, 0.770);
  EXPECT_EQ(explanation.window.one_request, 0.952);
  const std::string text = log_report(failing, explanation);
  EXPECT_NE(text.find("about 1,375 tokens)"), std::string::npos) << text;
  EXPECT_NE(
      text.find("--mem-fraction-static 0.772 or more: there one request of 4,096 tokens fits"),
      std::string::npos)
      << text;
}

TEST(LogReport, TheWorkingStorySaysHowFarTheFractionMayMove) {
  const std::string text = report_of("sglang-working.log");
  EXPECT_NE(text.find("left for KV             10.43 GiB"), std::string::npos) << text;
  EXPECT_NE(text.find("0.88 (auto): 0.770 is the smallest"), std::string::npos) << text;
}

TEST(LogReport, ItsOwnSmallestFractionIsTheOneThatTheServerNames) {
  const ForeignLog log = golden("sglang-0.5-minimum-named.log");
  EXPECT_EQ(explain_log(log, "x").window.any_kv, 0.912);  // "Raise ... above 0.912"
}

TEST(LogReport, WhereGraphsRanOutTheFractionMustComeDown) {
  const std::string text = report_of("sglang-capture-oom.log");
  EXPECT_NE(text.find("lower --mem-fraction-static"), std::string::npos) << text;
  EXPECT_EQ(text.find("raise --mem-fraction-static"), std::string::npos) << text;
}

TEST(LogReport, JsonHasStableNames) {
  const ForeignLog log = golden("sglang-failing.log");
  const Json json = log_report_json(log, explain_log(log, "x"));
  EXPECT_EQ(json.find("outcome")->as_string(), "no-kv");
  EXPECT_EQ(json.find("fraction_window")->find("any_kv_min")->as_double(), 0.770);
  EXPECT_EQ(json.find("figures")->find("kv_by_rule")->as_int(), -22'108'344'156);
  EXPECT_EQ(json.find("arguments")->as_array()[4].find("name")->as_string(), "mem-fraction-static");
  EXPECT_EQ(json.find("arguments")->as_array()[4].find("source")->as_string(), "flag");
  EXPECT_EQ(json.find("ranks")->as_array().size(), 8U);
}

}  // namespace
}  // namespace plimsoll
