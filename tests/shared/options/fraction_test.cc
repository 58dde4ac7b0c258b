#include "shared/options/fraction.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Fraction, TextRoundTrips) {
  for (const char* text : {"0.880", "0.001", "0.999", "0.8845", "1.000", "0.123456"}) {
    const Result<Millionths> read = parse_fraction(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(format_fraction(*read), text);
  }
  EXPECT_EQ(format_fraction(-500'000), "-0.500");
  EXPECT_EQ(*parse_fraction("0.88"), 880'000);
  EXPECT_EQ(*parse_fraction("1"), 1'000'000);
  for (const char* text : {"", "x", "0.88x", "88%", "1e-1", "nan", "inf", "0.1234567", " 0.5"}) {
    EXPECT_FALSE(parse_fraction(text)) << text;
  }
}

TEST(Fraction, SharesAreExactAndNeverOverflow) {
  EXPECT_EQ(share_of_bytes(94 * kGiB, 880'000), 94 * kGiB / 100 * 88 + 94 * kGiB % 100 * 88 / 100);
  EXPECT_EQ(share_of_bytes(1024 * 1024 * kGiB, 1'000'000), 1024 * 1024 * kGiB);
  EXPECT_EQ(share_of_bytes_up(10, 250'000), 3);
  EXPECT_EQ(share_of_bytes(10, 250'000), 2);
}

TEST(Fraction, OfAPartIsTheSmallestStepThatHoldsIt) {
  const Bytes whole = 94 * kGiB;
  const auto part = static_cast<Bytes>(72.29 * static_cast<double>(kGiB));
  EXPECT_EQ(fraction_of(part, whole), 770'000);  // 0.7690, rounded up
  EXPECT_GE(share_of_bytes(whole, 770'000), part);
  EXPECT_LT(share_of_bytes(whole, 769'000), part);
  EXPECT_EQ(fraction_of(whole, whole), 1'000'000);
}

}  // namespace
}  // namespace plimsoll
