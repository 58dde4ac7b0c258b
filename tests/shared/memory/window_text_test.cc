#include "shared/memory/window_text.h"

#include <gtest/gtest.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

TEST(WindowText, RangesAreInTheOptionsUnit) {
  EXPECT_EQ(window_range({.option = "mem-fraction-static", .low = 772'000, .high = 934'000}),
            "0.772 to 0.934");
  EXPECT_EQ(window_range({.option = "context-length", .low = 32, .high = 8192}), "32 to 8192");
}

TEST(WindowText, SizesAreRoundedInwards) {
  EXPECT_EQ(window_range({.option = "kv-cache-bytes", .low = kMiB + 1, .high = 4 * kMiB - 1}),
            "2MiB to 3MiB");
  EXPECT_EQ(window_range({.option = "kv-cache-bytes", .low = kMiB + 1, .high = kMiB + 2}),
            "1048577B to 1048578B");
}

TEST(WindowText, AnEmptyWindowSaysWhatEachEndNeeds) {
  const std::string text = join(window_lines({.option = "mem-fraction-static",
                                              .is_empty = true,
                                              .low = 851'000,
                                              .high = 846'000,
                                              .binds_low = "KV",
                                              .binds_high = "graphs"}),
                                "\n");
  EXPECT_EQ(text,
            "window: empty, no value of --mem-fraction-static works\n  KV needs at least 0.851\n"
            "  graphs allow at most 0.846");
}

}  // namespace
}  // namespace plimsoll
