#include "shared/model/gguf_type.h"

#include <set>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

double bits(std::uint32_t id) {
  const DTypeInfo* type = find_planned_type(id);
  EXPECT_NE(type, nullptr) << id;
  return type == nullptr ? 0
                         : 8.0 * static_cast<double>(type->block_bytes) /
                               static_cast<double>(type->block_length);
}

// What ggml calls its bits per weight.
TEST(GgufType, BlocksHaveTheBitsThatTheirMakersSay) {
  EXPECT_DOUBLE_EQ(bits(10), 2.625);   // Q2_K
  EXPECT_DOUBLE_EQ(bits(11), 3.4375);  // Q3_K
  EXPECT_DOUBLE_EQ(bits(16), 2.0625);  // IQ2_XXS
  EXPECT_DOUBLE_EQ(bits(17), 2.3125);  // IQ2_XS
  EXPECT_DOUBLE_EQ(bits(18), 3.0625);  // IQ3_XXS
  EXPECT_DOUBLE_EQ(bits(19), 1.5625);  // IQ1_S
  EXPECT_DOUBLE_EQ(bits(20), 4.5);     // IQ4_NL
  EXPECT_DOUBLE_EQ(bits(21), 3.4375);  // IQ3_S
  EXPECT_DOUBLE_EQ(bits(22), 2.5625);  // IQ2_S
  EXPECT_DOUBLE_EQ(bits(23), 4.25);    // IQ4_XS
  EXPECT_DOUBLE_EQ(bits(29), 1.75);    // IQ1_M
  EXPECT_DOUBLE_EQ(bits(34), 1.6875);  // TQ1_0
  EXPECT_DOUBLE_EQ(bits(35), 2.0625);  // TQ2_0
  EXPECT_DOUBLE_EQ(bits(39), 4.25);    // MXFP4
  EXPECT_DOUBLE_EQ(bits(40), 4.5);     // NVFP4
}

TEST(GgufType, NoneIsAlsoOneThatRuns) {
  std::set<std::string_view> names;
  for (const DTypeInfo& type : all_planned_types()) {
    EXPECT_EQ(dtype_from_gguf(static_cast<std::uint32_t>(type.dtype)), std::nullopt) << type.name;
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
  }
  for (const DTypeInfo& type : all_dtypes()) {
    EXPECT_EQ(find_planned_type(static_cast<std::uint32_t>(type.dtype)), nullptr) << type.name;
  }
  EXPECT_EQ(find_planned_type(4), nullptr);
}

}  // namespace
}  // namespace plimsoll
