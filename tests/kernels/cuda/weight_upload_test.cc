#include "kernels/cuda/weight_upload.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/pack.h"

namespace plimsoll::cuda {
namespace {

// More than two pieces: each is used again.
TEST(WeightUpload, ALargeMatrixArrivesAsIfPackedAtOnce) {
  constexpr std::int64_t kCols = 4096;
  constexpr std::int64_t kRows = 4000 + 5;
  std::vector<std::byte> stored(static_cast<std::size_t>(kRows * stored_bytes(DType::q8_0, kCols)));
  std::minstd_rand random(1);
  for (std::size_t i = 0; i + 4 <= stored.size(); i += 4) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(&stored[i], &word, 4);
  }
  const StoredSlice slice{.dtype = DType::q8_0,
                          .bytes = stored,
                          .cols_total = kCols,
                          .row_begin = 3,
                          .row_end = kRows,
                          .col_begin = 32,
                          .col_end = kCols};
  const Bytes bytes = packed_bytes(DType::q8_0, kRows - 3, kCols - 32);
  ASSERT_GT(bytes, 3 * kUploadBytes);
  std::vector<std::byte> want(static_cast<std::size_t>(bytes));
  pack_weights(slice, want);

  const auto runtime = make_host_runtime({.memory = bytes, .seed = 2});
  const auto memory = runtime->allocate(bytes, "weights");
  ASSERT_TRUE(memory);
  WeightUpload upload(*runtime);
  const Status done = upload.pack(slice, *memory);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(std::memcmp(memory->data(), want.data(), want.size()), 0);
}

TEST(WeightUpload, RowsThatNoPieceHoldsAreRefused) {
  constexpr std::int64_t kCols = kUploadBytes / 4;
  const std::vector<std::byte> stored(static_cast<std::size_t>(kCols * 4));
  const auto runtime = make_host_runtime({.memory = kMiB, .seed = 2});
  WeightUpload upload(*runtime);
  const Status refused = upload.pack({.dtype = DType::f32,
                                      .bytes = stored,
                                      .cols_total = kCols,
                                      .row_begin = 0,
                                      .row_end = 1,
                                      .col_begin = 0,
                                      .col_end = kCols},
                                     {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
}

}  // namespace
}  // namespace plimsoll::cuda
