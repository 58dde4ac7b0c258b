#include "shared/base/half.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr std::uint16_t kInfinity = 0x7c00;

TEST(Half, KnownValues) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0xc000), -2.0F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0x0400), 0x1p-14F);
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
  EXPECT_EQ(half_to_float(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  EXPECT_EQ(float_to_half(65519.0F), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0F), kInfinity);
  EXPECT_EQ(float_to_half(1e-9F), 0);
  EXPECT_EQ(float_to_half(-1e30F), 0xfc00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

TEST(Half, EveryHalfComesBackAsItWas) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_half(value), half) << bits;
  }
}

TEST(Half, BetweenTwoHalvesTheNearestIsTakenAndATieGoesToTheEvenOne) {
  for (std::uint16_t low = 0; low + 1 < kInfinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const float middle = (half_to_float(low) + half_to_float(high)) / 2;  // exact in a float
    ASSERT_EQ(float_to_half(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0F)), low) << low;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e6F)), high) << low;
    ASSERT_EQ(float_to_half(-middle), 0x8000 | (low % 2 == 0 ? low : high)) << low;
  }
}

TEST(Bfloat16, RoundsToTheNearestAndComesBack) {
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0F);
  EXPECT_EQ(float_to_bfloat16(-1.0F), 0xbf80);
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F), 0x3f80);  // a tie, to even
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-7F + 0x1p-8F), 0x3f82);  // a tie, to even
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::infinity())),
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace plimsoll
