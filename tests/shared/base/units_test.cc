#include "shared/base/units.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Units, SizesAreReadWithTheirUnit) {
  EXPECT_EQ(*parse_bytes("16GiB"), 16 * kGiB);
  EXPECT_EQ(*parse_bytes("1.5G"), 3 * kGiB / 2);
  EXPECT_EQ(*parse_bytes("512MiB"), 512 * kMiB);
  EXPECT_EQ(*parse_bytes("4096B"), 4096);
}

TEST(Units, ASizeWithoutAUnitOrANumberIsRefused) {
  for (const char* text : {"16", "", "GiB", "16GB", "-1GiB", "1e30TiB", "nanGiB", "16 GiB"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Units, SizesAreShownInBinaryUnits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(96 * kMiB + kMiB / 5), "96.2 MiB");
  EXPECT_EQ(format_bytes(-20 * kGiB), "-20.00 GiB");
}

TEST(Units, RoundUpAndCeilDivReachTheNextMultiple) {
  EXPECT_EQ(round_up(33, 16), 48);
  EXPECT_EQ(round_up(32, 16), 32);
  EXPECT_EQ(ceil_div(33, 16), 3);
}

}  // namespace
}  // namespace plimsoll
