#include "kernels/cpu/packed_layout.h"

#include <gtest/gtest.h>

#include "kernels/cpu/pack.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

TEST(PackedLayout, UnpacksEveryElementOfEveryType) {
  constexpr std::int64_t kRows = 21, kCols = 512;
  for (const DType dtype : kAllDTypes) {
    const StoredMatrix stored = random_matrix(dtype, kRows, kCols, 3);
    AlignedBytes packed(packed_bytes(dtype, kRows, kCols));
    pack_groups(stored.slice(), 0, 2, packed.span().data());
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::byte* group =
          packed.span().data() + r / kPackedRows * packed_bytes(dtype, kPackedRows, kCols);
      const int lane = static_cast<int>(r % kPackedRows);
      for (std::int64_t c = 0; c < kCols; ++c) {
        double value = 0;
        if (is_quantised(dtype)) {
          UnpackedRow row;
          unpack_row(dtype, group, c / kSubBlock, lane, row);
          value = static_cast<double>(row.scale[c % 32 / 16]) * row.quants[c % 32] + row.min;
        } else {
          value = unpack_float(dtype, group, kCols, c, lane);
        }
        ASSERT_NEAR(value, stored.at(r, c), 1e-9)
            << dtype_info(dtype).name << " row " << r << ", column " << c;
      }
    }
  }
}

// BF16 lies in pairs of columns; the last of an odd number has none.
TEST(PackedLayout, UnpacksOddNumbersOfColumnsOfFloatTypes) {
  constexpr std::int64_t kRows = 19;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t cols : {1, 2, 3, 45}) {
      const StoredMatrix stored = random_matrix(dtype, kRows, cols, 4);
      AlignedBytes packed(packed_bytes(dtype, kRows, cols));
      pack_groups(stored.slice(), 0, 2, packed.span().data());
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::byte* group =
            packed.span().data() + r / kPackedRows * packed_bytes(dtype, kPackedRows, cols);
        for (std::int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(unpack_float(dtype, group, cols, c, static_cast<int>(r % kPackedRows)),
                    stored.at(r, c))
              << dtype_info(dtype).name << ", " << cols << " columns, row " << r << ", column "
              << c;
        }
      }
    }
  }
}

TEST(PackedLayout, FloatTypesAreNotQuantised) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(is_quantised(dtype), dtype_info(dtype).block_length > 1) << dtype_info(dtype).name;
  }
}

}  // namespace
}  // namespace plimsoll
