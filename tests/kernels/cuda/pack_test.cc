#include "kernels/cuda/pack.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/stored_matrix.h"

namespace plimsoll::cuda {
namespace {

class CudaPack : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaPack, testing::ValuesIn(kAllDTypes), [](const auto& tested) {
  return std::string(dtype_info(tested.param).name);
});

// Unpacking is tested where weights are read: embed_test and linear_test.
TEST_P(CudaPack, CutsTheSameBytesAsFromAMatrixOfTheSliceAlone) {
  const std::int64_t unit = std::max<std::int64_t>(dtype_info(GetParam()).block_length, 32);
  const StoredMatrix all = random_matrix(GetParam(), 40, 4 * unit, 3);
  StoredSlice slice = all.slice();
  slice.row_begin = 5;
  slice.row_end = 38;
  slice.col_begin = unit;
  slice.col_end = 3 * unit;
  // The slice as a matrix of its own.
  StoredMatrix own{.dtype = GetParam(), .rows = 33, .cols = 2 * unit, .bytes = {}, .values = {}};
  const auto row_bytes = static_cast<std::ptrdiff_t>(stored_bytes(GetParam(), 4 * unit));
  const auto cut = static_cast<std::ptrdiff_t>(stored_bytes(GetParam(), unit));
  for (std::ptrdiff_t row = 5; row < 38; ++row) {
    const auto begin = all.bytes.begin() + row * row_bytes + cut;
    own.bytes.insert(own.bytes.end(), begin, begin + 2 * cut);
  }
  AlignedBytes from_all(packed_bytes(GetParam(), 33, 2 * unit));
  AlignedBytes from_own(packed_bytes(GetParam(), 33, 2 * unit));
  pack_weights(slice, from_all.span());
  pack_weights(own.slice(), from_own.span());
  EXPECT_TRUE(std::ranges::equal(from_all.span(), from_own.span()));
}

TEST_P(CudaPack, TakesTheBytesThatThePlanCountsWith) {
  if (!is_quantised(weight_format(GetParam()))) return;
  const std::int64_t cols = 2 * dtype_info(GetParam()).block_length;
  EXPECT_EQ(2 * packed_block_bytes(GetParam()), packed_bytes(GetParam(), kGroupRows, cols));
}

}  // namespace
}  // namespace plimsoll::cuda
