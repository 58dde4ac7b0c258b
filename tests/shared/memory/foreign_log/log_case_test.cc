#include "shared/memory/foreign_log/log_case.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(LogCase, TheLeastOfAllRanksCounts) {
  ForeignLog log;
  log.fraction = 0.5;
  log.ranks.push_back({.name = "TP0", .base = 10 * kGiB, .left = 8 * kGiB});
  log.ranks.push_back({.name = "TP1", .base = 9 * kGiB, .left = 8 * kGiB});
  const LogCase c(log, {});
  EXPECT_EQ(c.base, 9 * kGiB);
  EXPECT_EQ(c.kv, kGiB * 7 / 2);
  EXPECT_EQ(c.flag, "--mem-fraction-static");
  EXPECT_EQ(c.value_with_origin(), "0.5");
  EXPECT_FALSE(c.one_request());
}

TEST(LogCase, HintsServeWhereTheLogIsSilent) {
  ForeignLog log;
  log.server = ForeignServer::vllm;
  const LogCase c(log, {.kv_bytes_per_token = 1000.0, .context = 4096});
  EXPECT_EQ(c.one_request(), 4'096'000);
  EXPECT_EQ(c.tokens_text(5'000'000), ", about 5,000 tokens");
  EXPECT_EQ(c.tokens_text(0), "");
  EXPECT_EQ(c.value_with_origin(), "(default)");
  log.kv_needed = 7;
  EXPECT_EQ(LogCase(log, {}).one_request(), 7) << "what the server says goes before";
}

TEST(LogCase, FractionsAreOfThreeDigits) {
  EXPECT_EQ(floor3(0.7709), 0.770);
  EXPECT_EQ(ceil3(0.7701), 0.771);
  EXPECT_EQ(ceil3(0.77), 0.77);
  EXPECT_EQ(gib_text(kGiB * 3 / 2), "1.50");
}

}  // namespace
}  // namespace plimsoll
