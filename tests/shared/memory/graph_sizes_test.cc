#include "shared/memory/graph_sizes.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(GraphSizes, FiftyTwoUpTo512) {
  const std::vector<std::int64_t> sizes = graph_sizes(512);
  EXPECT_EQ(sizes.size(), 52U);
  EXPECT_EQ(sizes.front(), 1);
  EXPECT_EQ(sizes.back(), 512);
}

TEST(GraphSizes, TheLargestIsAlwaysCapturedAndTheCountAgrees) {
  for (std::int64_t largest = 0; largest <= 700; ++largest) {
    const std::vector<std::int64_t> sizes = graph_sizes(largest);
    EXPECT_EQ(std::ssize(sizes), graph_size_count(largest)) << largest;
    if (largest > 0) {
      EXPECT_EQ(sizes.back(), largest);
    }
  }
}

}  // namespace
}  // namespace plimsoll
