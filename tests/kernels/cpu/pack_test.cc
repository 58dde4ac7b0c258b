#include "kernels/cpu/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

TEST(Pack, KeepsEveryBitOfWholeGroups) {
  // A shuffle keeps the number of set bits and, with the unpacking test, their meaning.
  for (const DType dtype : kAllDTypes) {
    const StoredMatrix stored = random_matrix(dtype, 32, 512, 5);
    AlignedBytes packed(packed_bytes(dtype, 32, 512));
    ASSERT_EQ(packed.span().size(), stored.bytes.size());
    pack_groups(stored.slice(), 0, 2, packed.span().data());
    const auto bits = [](std::span<const std::byte> bytes) {
      std::int64_t count = 0;
      for (const std::byte byte : bytes) count += std::popcount(static_cast<unsigned char>(byte));
      return count;
    };
    EXPECT_EQ(bits(packed.span()), bits(stored.bytes)) << dtype_info(dtype).name;
  }
}

TEST(Pack, ASliceIsTheSameAsAMatrixOfItsOwn) {
  for (const DType dtype : kAllDTypes) {
    const StoredMatrix stored = random_matrix(dtype, 50, 1024, 6);
    const DTypeInfo& info = dtype_info(dtype);
    StoredSlice slice = stored.slice();
    slice.row_begin = 7;
    slice.row_end = 40;
    slice.col_begin = 256;
    slice.col_end = 768;
    StoredMatrix cut{.dtype = dtype, .rows = 33, .cols = 512, .bytes = {}, .values = {}};
    for (std::int64_t r = 7; r < 40; ++r) {
      const std::byte* row = stored.bytes.data() + stored_bytes(dtype, r * 1024 + 256);
      cut.bytes.insert(cut.bytes.end(), row, row + stored_bytes(dtype, 512));
    }
    AlignedBytes from_slice(packed_bytes(dtype, 33, 512)), from_cut(packed_bytes(dtype, 33, 512));
    pack_groups(slice, 0, 3, from_slice.span().data());
    pack_groups(cut.slice(), 0, 3, from_cut.span().data());
    EXPECT_TRUE(std::ranges::equal(from_slice.span(), from_cut.span())) << info.name;
  }
}

TEST(Pack, LeavesPaddingRowsAsTheyWere) {
  const StoredMatrix stored = random_matrix(DType::q8_0, 5, 32, 1);
  AlignedBytes packed(packed_bytes(DType::q8_0, 5, 32));
  pack_groups(stored.slice(), 0, 1, packed.span().data());
  for (int vector = 0; vector < 8; ++vector) {
    for (int lane = 5; lane < 16; ++lane) {
      const std::byte* word = packed.span().data() + 32 + 64 * vector + 4 * lane;
      EXPECT_TRUE(std::all_of(word, word + 4, [](std::byte b) { return b == std::byte{0}; }));
    }
  }
}

}  // namespace
}  // namespace plimsoll
