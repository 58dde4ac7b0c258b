#include "shared/model/element_type.h"

#include <limits>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ElementType, KnowsTheFormatsNames) {
  EXPECT_EQ(find_element_type("BF16")->bits, 16);
  EXPECT_EQ(find_element_type("F8_E4M3")->bits, 8);
  EXPECT_EQ(find_element_type("F4")->bits, 4);
  EXPECT_EQ(find_element_type("bf16"), nullptr);
  EXPECT_EQ(find_element_type(""), nullptr);
}

TEST(ElementType, BytesAreWholeAndInRange) {
  const ElementType& f4 = *find_element_type("F4");
  EXPECT_EQ(element_bytes(f4, 6), 3);
  EXPECT_EQ(element_bytes(f4, 7), std::nullopt);
  const ElementType& f64 = *find_element_type("F64");
  EXPECT_EQ(element_bytes(f64, 0), 0);
  EXPECT_EQ(element_bytes(f64, std::numeric_limits<std::int64_t>::max() / 32), std::nullopt);
  EXPECT_EQ(element_bytes(f64, -1), std::nullopt);
}

}  // namespace
}  // namespace plimsoll
