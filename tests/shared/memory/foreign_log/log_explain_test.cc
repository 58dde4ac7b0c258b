// explain_log() on records that no golden log holds.
#include <gtest/gtest.h>

#include "shared/memory/foreign_log/log_report.h"

namespace plimsoll {
namespace {

Bytes gib(double value) { return static_cast<Bytes>(value * static_cast<double>(kGiB)); }

std::string report(const ForeignLog& log) { return log_report(log, explain_log(log, "x")); }

TEST(LogExplain, ARecordOfNothingIsExplainedToo) {
  for (const ForeignServer server : {ForeignServer::sglang, ForeignServer::vllm}) {
    for (int end = 0; end <= static_cast<int>(ForeignEnd::other); ++end) {
      ForeignLog log;
      log.server = server;
      log.end = static_cast<ForeignEnd>(end);
      EXPECT_FALSE(report(log).empty());
      log.ranks.emplace_back();
      log.fraction = 0.5;
      EXPECT_FALSE(report(log).empty());
      log.ranks[0].base = 0;
      log.ranks[0].left = 0;
      log.total = 0;
      log.free_at_start = 0;
      log.ranks[0].kv = -1;
      EXPECT_FALSE(report(log).empty());
    }
  }
}

TEST(LogExplain, WhereNoFractionHelpsMoreDevicesAreNamed) {
  ForeignLog log;
  log.end = ForeignEnd::no_kv;
  log.fraction = 0.9;
  log.ranks.push_back({.name = "TP0", .base = gib(10), .weights = gib(10), .draft = {}, .left = 0});
  const std::string text = report(log);
  EXPECT_NE(text.find("use more devices"), std::string::npos) << text;
  EXPECT_EQ(text.find("raise --mem-fraction-static to"), std::string::npos) << text;
}

TEST(LogExplain, AnEmptyWindowIsSaid) {
  ForeignLog log;
  log.end = ForeignEnd::no_graphs;
  log.fraction = 0.85;
  log.ranks.push_back(
      {.name = "", .base = gib(44), .weights = gib(37), .draft = {}, .left = gib(7)});
  log.oom = OomLine{.tried = gib(1), .total = gib(44), .free = 0};
  const std::string text = report(log);
  EXPECT_NE(text.find("the window is"), std::string::npos) << text;
  EXPECT_NE(text.find("lower --cuda-graph-max-bs"), std::string::npos) << text;
}

TEST(LogExplain, UtilizationCannotGoBeyondWhatWasFree) {
  ForeignLog log;
  log.server = ForeignServer::vllm;
  log.end = ForeignEnd::no_kv;
  log.fraction = 0.5;
  log.total = gib(100);
  log.free_at_start = gib(52);
  log.ranks.push_back({.name = ""});
  log.ranks[0].kv = gib(-5);
  const LogExplanation explanation = explain_log(log, "x");
  EXPECT_EQ(explanation.window.any_kv, 0.551);
  EXPECT_EQ(explanation.window.most, 0.52);
  EXPECT_NE(report(log).find("raising it alone does not help"), std::string::npos) << report(log);
  EXPECT_EQ(report(log).find("count as its own"), std::string::npos) << "it measures its own";
  log.counts_others = true;
  EXPECT_NE(report(log).find("count as its own"), std::string::npos) << report(log);
  EXPECT_EQ(report(log).find("raising it alone does not help"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
