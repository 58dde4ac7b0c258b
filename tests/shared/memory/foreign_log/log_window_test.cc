#include "shared/memory/foreign_log/log_window.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(LogWindow, OfTheStorysFractionIsExactAtItsLowerEnds) {
  ForeignLog log;
  log.fraction = 0.55;
  const Bytes left = 21 * kGiB + kGiB * 71 / 100;
  log.ranks.push_back({.name = "TP0", .base = 94 * kGiB, .weights = {}, .draft = {}, .left = left});
  const FractionWindow window =
      log_window(LogCase(log, {.kv_bytes_per_token = 70'272.0, .context = 4096}));
  EXPECT_EQ(window.any_kv, 0.770);
  EXPECT_EQ(window.one_request, 0.772);
  EXPECT_FALSE(window.most) << "it did not serve";
}

TEST(LogWindow, UtilizationEndsAtWhatWasFree) {
  ForeignLog log;
  log.server = ForeignServer::vllm;
  log.total = 100 * kGiB;
  log.free_at_start = 52 * kGiB;
  log.fraction = 0.5;
  log.ranks.emplace_back();
  log.ranks[0].kv = -5 * kGiB;
  const FractionWindow window = log_window(LogCase(log, {}));
  EXPECT_EQ(window.most, 0.52);
  EXPECT_EQ(window.any_kv, 0.551);
  EXPECT_FALSE(window.automatic);
  log.counts_others = true;  // the share has the others' in it
  EXPECT_FALSE(log_window(LogCase(log, {})).most);
  log.counts_others = false;
  log.args.push_back({.name = "kv-cache-bytes", .written = "", .value = "4294967296"});
  const FractionWindow beside = log_window(LogCase(log, {}));
  EXPECT_EQ(beside.most, 0.52);
  EXPECT_FALSE(beside.any_kv) << "KV is not of the share";
  EXPECT_FALSE(beside.one_request);
}

}  // namespace
}  // namespace plimsoll
