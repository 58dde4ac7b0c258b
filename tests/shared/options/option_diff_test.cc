#include "shared/options/option_diff.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(OptionDiff, EqualOptionsNeedNothing) {
  const OptionDiff diff = diff_options(Options{}, Options{});
  EXPECT_TRUE(diff.changes.empty());
  EXPECT_EQ(diff.strongest, Effect::live);
}

TEST(OptionDiff, TheStrongestEffectWins) {
  Options after;
  after.log_level = "debug";
  EXPECT_EQ(diff_options(Options{}, after).strongest, Effect::live);
  after.threads = 2;
  EXPECT_EQ(diff_options(Options{}, after).strongest, Effect::rolling);
  after.tp = 2;
  EXPECT_EQ(diff_options(Options{}, after).strongest, Effect::full);
  after.state_dir = "/elsewhere";
  const OptionDiff diff = diff_options(Options{}, after);
  EXPECT_EQ(diff.strongest, Effect::fixed);
  ASSERT_EQ(diff.changes.size(), 4U);
  EXPECT_EQ(diff.changes[0].name, "tp");  // in table order
  EXPECT_EQ(diff.changes[1].before, "auto");
  EXPECT_EQ(diff.changes[1].after, "2");
}

}  // namespace
}  // namespace plimsoll
