#include "shared/model/weight_index.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(WeightIndex, FindsAWeightByItsName) {
  WeightIndex index;
  EXPECT_TRUE(index.add({"a", DType::f32, {3, 4}, 64, 48}));
  ASSERT_NE(index.find("a"), nullptr);
  EXPECT_EQ(index.find("a")->offset, 64U);
  EXPECT_EQ(index.find("b"), nullptr);
}

TEST(WeightIndex, ANameIsTakenOnce) {
  WeightIndex index;
  EXPECT_TRUE(index.add({"a", DType::f32, {4}, 0, 16}));
  EXPECT_FALSE(index.add({"a", DType::f16, {4}, 32, 8}));
  EXPECT_EQ(index.find("a")->dtype, DType::f32);
  EXPECT_EQ(index.bytes(), 16);
}

TEST(WeightIndex, SumsStoredBytes) {
  WeightIndex index;
  EXPECT_EQ(index.bytes(), 0);
  EXPECT_TRUE(index.add({"a", DType::f32, {4}, 0, 16}));
  EXPECT_TRUE(index.add({"b", DType::f16, {4}, 32, 8}));
  EXPECT_EQ(index.bytes(), 24);
}

TEST(WeightInfo, RowsAreAllDimensionsButTheLast) {
  EXPECT_EQ((WeightInfo{"v", DType::f32, {7}, 0, 28}.rows()), 1);
  EXPECT_EQ((WeightInfo{"v", DType::f32, {7}, 0, 28}.cols()), 7);
  EXPECT_EQ((WeightInfo{"m", DType::f32, {2, 3, 5}, 0, 120}.rows()), 6);
  EXPECT_EQ((WeightInfo{"m", DType::f32, {2, 3, 5}, 0, 120}.cols()), 5);
}

}  // namespace
}  // namespace plimsoll
