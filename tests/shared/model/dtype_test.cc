#include "shared/model/dtype.h"

#include <set>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(DType, BlocksAreAsLongAsTheFormatSays) {
  EXPECT_EQ(stored_bytes(DType::f32, 10), 40);
  EXPECT_EQ(stored_bytes(DType::f16, 10), 20);
  EXPECT_EQ(stored_bytes(DType::bf16, 10), 20);
  EXPECT_EQ(stored_bytes(DType::q4_0, 64), 36);
  EXPECT_EQ(stored_bytes(DType::q4_1, 64), 40);
  EXPECT_EQ(stored_bytes(DType::q5_0, 64), 44);
  EXPECT_EQ(stored_bytes(DType::q5_1, 64), 48);
  EXPECT_EQ(stored_bytes(DType::q8_0, 64), 68);
  EXPECT_EQ(stored_bytes(DType::q4_k, 512), 288);
  EXPECT_EQ(stored_bytes(DType::q5_k, 512), 352);
  EXPECT_EQ(stored_bytes(DType::q6_k, 512), 420);
  EXPECT_EQ(stored_bytes(DType::q6_k, 0), 0);
}

TEST(DType, EveryTypeIsFoundByItsGgufId) {
  std::set<std::string_view> names;
  for (const DTypeInfo& info : all_dtypes()) {
    const auto id = static_cast<std::uint32_t>(info.dtype);
    EXPECT_EQ(dtype_from_gguf(id), info.dtype) << info.name;
    EXPECT_EQ(gguf_type_name(id), info.name);
    EXPECT_EQ(dtype_info(info.dtype).name, info.name);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_EQ(names.size(), 11U);
}

TEST(DType, TypesThatCannotBeRunHaveANameButNoDType) {
  EXPECT_EQ(dtype_from_gguf(10), std::nullopt);
  EXPECT_EQ(gguf_type_name(10), "Q2_K");
  EXPECT_EQ(stored_bytes(static_cast<DType>(10), 512), 168);
  EXPECT_EQ(gguf_type_name(39), "MXFP4");
  EXPECT_EQ(dtype_from_gguf(4), std::nullopt);
  EXPECT_EQ(gguf_type_name(4), "type 4");
  EXPECT_EQ(dtype_from_gguf(0xffffffff), std::nullopt);
  EXPECT_EQ(gguf_type_name(0xffffffff), "type 4294967295");
}

TEST(DType, PackedRowsAreRoundedUpToWholeGroups) {
  EXPECT_EQ(packed_bytes(DType::q4_1, 16, 576), stored_bytes(DType::q4_1, 16 * 576));
  EXPECT_EQ(packed_bytes(DType::q4_1, 17, 576), stored_bytes(DType::q4_1, 32 * 576));
  EXPECT_EQ(packed_bytes(DType::q4_1, 1, 32), 16 * 20);
  EXPECT_EQ(packed_bytes(DType::f32, 3, 5), 16 * 5 * 4);
  EXPECT_EQ(packed_bytes(DType::q8_0, 0, 32), 0);
}

TEST(DTypeDeathTest, APartOfABlockHasNoBytes) {
  EXPECT_DEATH((void)stored_bytes(DType::q4_1, 33), "CHECK failed");
}

}  // namespace
}  // namespace plimsoll
