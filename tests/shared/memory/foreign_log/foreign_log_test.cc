#include "shared/memory/foreign_log/foreign_log.h"

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

std::string text_of(const std::string& name) { return read_test_file(golden_path("logs/" + name)); }

ForeignLog parsed(std::string_view text) {
  const auto log = parse_foreign_log(text);
  EXPECT_TRUE(log) << (log ? "" : log.error().message);
  return log ? *log : ForeignLog{};
}

TEST(ForeignLog, ALogWithoutALaunchSaysWhatWasLookedFor) {
  for (const std::string& text : {text_of("noise.log"), std::string(), std::string("\n\n\n")}) {
    const auto log = parse_foreign_log(text);
    ASSERT_FALSE(log);
    EXPECT_EQ(log.error().code, Code::invalid);
    EXPECT_NE(log.error().message.find("server_args=ServerArgs(...)"), std::string::npos);
    EXPECT_NE(log.error().message.find("GPU KV cache size"), std::string::npos);
  }
}

TEST(ForeignLog, EveryPrefixOfALogIsReadOrRefused) {
  for (const char* name : {"sglang-failing.log", "vllm-0.6-short-kv.log"}) {
    const std::string whole = text_of(name);
    for (std::size_t length = 0; length <= whole.size(); length += 211) {
      const auto log = parse_foreign_log(std::string_view(whole).substr(0, length));
      EXPECT_TRUE(log || length < 400) << name << " " << length;
    }
  }
}

TEST(ForeignLog, OfSeveralLaunchesInOneFileTheLastCounts) {
  const std::string working = text_of("sglang-working.log");
  const std::string failing = text_of("sglang-failing.log");
  const ForeignLog last = parsed(working + failing);
  EXPECT_EQ(last.launches, 2);
  EXPECT_EQ(last.end, ForeignEnd::no_kv);
  EXPECT_EQ(last.fraction, 0.55);
  EXPECT_FALSE(last.became_ready);
  EXPECT_EQ(last.ranks.size(), 8U);
  EXPECT_FALSE(last.ranks[0].graphs);
  EXPECT_EQ(parsed(failing + working).end, ForeignEnd::served);
}

TEST(ForeignLog, ColoursAndCarriageReturnsDoNotMatter) {
  std::string coloured;
  for (const char c : text_of("sglang-failing.log")) {
    if (c == '\n') coloured += "\x1b[0m\r";
    coloured += c;
    if (c == '\n') coloured += "\x1b[32m";
  }
  const ForeignLog log = parsed(coloured);
  EXPECT_EQ(log.end, ForeignEnd::no_kv);
  EXPECT_EQ(log.ranks.size(), 8U);
}

TEST(ForeignLog, TheTightestRankAndTheLeastOfAllDecide) {
  ForeignLog log;
  log.fraction = 0.5;
  log.ranks.push_back({.name = "TP0", .base = 100, .weights = {}, .draft = {}, .left = 60});
  log.ranks.push_back({.name = "TP1", .base = 90, .weights = {}, .draft = {}, .left = 70});
  EXPECT_EQ(log.tightest()->name, "TP0");
  EXPECT_EQ(log.kv_rule(), 60 - 45);  // SGLang takes the least of each
}

TEST(ForeignLog, AnErrorOfARequestIsNoFailureOfTheLaunch) {
  const ForeignLog log = parsed(text_of("sglang-working.log") +
                                "Traceback (most recent call last):\n"
                                "ValueError: input is too long\n");
  EXPECT_EQ(log.end, ForeignEnd::served);
}

TEST(ForeignLog, AnErrorThatIsNotAboutMemoryIsQuoted) {
  const ForeignLog log = parsed(
      "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/x', tp_size=1)\n"
      "[2026-01-01 00:00:01] Scheduler hit an exception: Traceback (most recent call last):\n"
      "  File \"x.py\", line 1\n"
      "ImportError: libnccl.so.2: cannot open shared object file\n");
  EXPECT_EQ(log.end, ForeignEnd::other);
  EXPECT_EQ(log.end_line, "ImportError: libnccl.so.2: cannot open shared object file");
  EXPECT_EQ(log.end_line_number, 4);
}

TEST(ForeignLog, ALoneErrorIsTheEndWhereNothingElseSaysIt) {
  const std::string begin =
      "INFO 10-25 13:00:00 [utils.py:233] non-default args: {'model': 'm', 'max_model_len': 8192}\n"
      "(EngineCore_DP0 pid=200) INFO 10-25 13:00:20 [core.py:77] Initializing a V1 LLM engine "
      "(v0.11.0) with config: model='m', max_seq_len=8192\n";
  const std::string error =
      "(EngineCore_DP0 pid=200) ERROR 10-25 13:01:30 [core.py:708] ValueError: The output_size of "
      "gate's and up's weight = 3696 is not divisible by weight quantization block_n = 128.\n";
  const auto log = parse_foreign_log(begin + error);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_EQ(log->end, ForeignEnd::other);
  EXPECT_EQ(log->end_line_number, 3);
  EXPECT_NE(log->end_line.find("is not divisible by weight quantization"), std::string::npos);
  // One that was survived while it was still loading.
  const auto loading = parse_foreign_log(
      begin + error +
      "(EngineCore_DP0 pid=200) INFO 10-25 13:01:40 [gpu_model_runner.py:2653] Model loading took "
      "15.00 GiB memory and 3.1 seconds\n");
  ASSERT_TRUE(loading);
  EXPECT_EQ(loading->end, ForeignEnd::unknown) << loading->end_line;
  // One that was survived, and one of a launch before this.
  const auto served = parse_foreign_log(begin + error + "INFO: Application startup complete.\n");
  ASSERT_TRUE(served);
  EXPECT_EQ(served->end, ForeignEnd::served);
  const auto again = parse_foreign_log(begin + error + begin);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->launches, 2);
  EXPECT_EQ(again->end, ForeignEnd::unknown);
}

TEST(ForeignLog, QuotesOfTheLogAreBoundedAndValidText) {
  const ForeignLog log = parsed(
      "server_args=ServerArgs(tp_size=1)\nNot enough memory. Please try "
      "to increase \xff" +
      std::string(100'000, 'x') + "\n");
  EXPECT_LE(log.end_line.size(), kEndLineMax);
}

TEST(ForeignLog, ManyRanksNamesAndLaunchesTakeBoundedMemory) {
  ForeignLogReader reader;
  reader.line("server_args=ServerArgs(tp_size=1)");
  for (int i = 0; i < 2'000; ++i) {
    reader.line("[2026-01-01 00:00:00 TP" + std::to_string(i) +
                "] Load weight begin. avail mem=1 GB");
  }
  const auto log = reader.finish();
  ASSERT_TRUE(log);
  EXPECT_LE(log->ranks.size(), 1024U);
}

}  // namespace
}  // namespace plimsoll
