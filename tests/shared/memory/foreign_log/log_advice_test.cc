#include "shared/memory/foreign_log/log_advice.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::string advice_of(const ForeignLog& log) {
  LogExplanation explanation;
  add_log_advice(LogCase(log, {}), explanation);
  std::string text;
  for (const std::string& sentence : explanation.why) text += sentence + "\n";
  for (const LogAdvice& advice : explanation.advice) {
    text += advice.change + ": " + advice.why + "\n";
  }
  return text;
}

ForeignLog short_of_kv(Bytes kv) {
  ForeignLog log;
  log.server = ForeignServer::vllm;
  log.end = ForeignEnd::short_kv;
  log.kv_needed = 16 * kGiB;
  log.ranks.emplace_back();
  log.ranks[0].kv = kv;
  return log;
}

TEST(LogAdvice, HalfTheBytesAreOfferedOnlyWhereTheySuffice) {
  EXPECT_EQ(advice_of(short_of_kv(3 * kGiB)).find("fp8"), std::string::npos);
  EXPECT_NE(advice_of(short_of_kv(8 * kGiB)).find("--kv-cache-dtype fp8: one request then needs 8"),
            std::string::npos)
      << advice_of(short_of_kv(8 * kGiB));
  ForeignLog halved = short_of_kv(8 * kGiB);
  halved.args.push_back({"kv-cache-dtype", "kv_cache_dtype", "fp8_e4m3"});
  EXPECT_EQ(advice_of(halved).find("--kv-cache-dtype"), std::string::npos) << "it is so already";
  ForeignLog tokens = short_of_kv(0);
  tokens.kv_needed.reset();
  tokens.ranks.clear();
  tokens.context = 4096;
  tokens.kv_tokens = 3664;
  EXPECT_NE(advice_of(tokens).find("fp8"), std::string::npos);
  tokens.kv_tokens = 1000;
  EXPECT_EQ(advice_of(tokens).find("fp8"), std::string::npos);
}

TEST(LogAdvice, HowMuchMoreKvNeedsIsSaidWhereTheDeviceIsNotKnown) {
  EXPECT_NE(advice_of(short_of_kv(3 * kGiB)).find("KV needs 13.00 GiB more of each device"),
            std::string::npos);
}

TEST(LogAdvice, LeavingTheFractionOutIsRuledOutOnlyWhereNoDeviceWouldGiveIt) {
  ForeignLog log;
  log.end = ForeignEnd::no_kv;
  log.fraction = 0.3;
  log.ranks.push_back({.name = "TP0", .base = 22 * kGiB, .left = 9 * kGiB});
  EXPECT_NE(advice_of(log).find("or leave --mem-fraction-static out"), std::string::npos);
  log.ranks[0].left = 2 * kGiB;
  EXPECT_NE(advice_of(log).find("would not do"), std::string::npos) << advice_of(log);
  log.ranks[0].left = 7 * kGiB;  // nothing by what was free, and a little by the device's total
  EXPECT_EQ(advice_of(log).find("would not do"), std::string::npos) << advice_of(log);
}

TEST(LogAdvice, TokensAreNamedHoweverItEnded) {
  for (const ForeignEnd end : {ForeignEnd::no_graphs, ForeignEnd::no_step, ForeignEnd::served,
                               ForeignEnd::unknown, ForeignEnd::other}) {
    ForeignLog log;
    log.end = end;
    log.kv_tokens = 448'064;
    EXPECT_NE(advice_of(log).find("KV holds 448,064 tokens."), std::string::npos);
  }
}

TEST(LogAdvice, WhereMoreWasFreeThanAskedForAnotherLimitIsNamed) {
  ForeignLog log;
  log.end = ForeignEnd::no_weights;
  log.oom = OomLine{.tried = kGiB, .total = 24 * kGiB, .free = 14 * kGiB};
  EXPECT_NE(advice_of(log).find("the device had enough"), std::string::npos);
  log.oom->free = kGiB / 2;
  EXPECT_EQ(advice_of(log).find("the device had enough"), std::string::npos);
}

TEST(LogAdvice, WhereKvItselfDidNotFitTheFractionComesDown) {
  ForeignLog log;
  log.end = ForeignEnd::no_pool;
  log.fraction = 0.95;
  log.ranks.push_back({.name = "", .base = 23 * kGiB, .left = 8 * kGiB});
  EXPECT_NE(advice_of(log).find("lower --mem-fraction-static from 0.95"), std::string::npos);
  EXPECT_EQ(advice_of(log).find("--max-num"), std::string::npos) << "those are vLLM's";
}

}  // namespace
}  // namespace plimsoll
