#include "worker/sample/philox.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// The known answers that come with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox_4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox_4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox_4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawsAreUniformAndDependOnSeedAndPosition) {
  EXPECT_NE(uniform_at(1, 5), uniform_at(2, 5));
  EXPECT_NE(uniform_at(1, 5), uniform_at(1, 6));
  EXPECT_EQ(uniform_at(1, 5), uniform_at(1, 5));
  double sum = 0;
  for (std::uint64_t position = 0; position < 100'000; ++position) {
    const double uniform = uniform_at(42, position);
    ASSERT_GE(uniform, 0);
    ASSERT_LT(uniform, 1);
    sum += uniform;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
}

}  // namespace
}  // namespace plimsoll
