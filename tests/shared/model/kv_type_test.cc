#include "shared/model/kv_type.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(KvType, TypesHaveNamesAndSizes) {
  for (const KvType type : {KvType::f16, KvType::bf16, KvType::fp8, KvType::int8}) {
    EXPECT_EQ(kv_type_from_name(kv_type_name(type)), type);
  }
  EXPECT_EQ(kv_type_from_name("q4"), std::nullopt);
  EXPECT_EQ(kv_row_bytes(KvType::f16, 128), 256);
  EXPECT_EQ(kv_row_bytes(KvType::fp8, 128), 128);
  EXPECT_EQ(kv_row_bytes(KvType::int8, 128), 132);
}

}  // namespace
}  // namespace plimsoll
