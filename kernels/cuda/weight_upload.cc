#include "kernels/cuda/weight_upload.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/pack.h"
#include "shared/model/dtype.h"

namespace plimsoll::cuda {

Status WeightUpload::pack(const StoredSlice& slice, std::span<std::byte> destination) {
  if (pieces_[0].empty()) {
    for (std::span<std::byte>& piece : pieces_) {
      piece = TRY(runtime_.allocate_host(kUploadBytes, "weights on their way to the device"));
    }
  }
  const std::int64_t cols = slice.col_end - slice.col_begin;
  const Bytes group = packed_bytes(slice.dtype, kGroupRows, cols);
  const std::int64_t rows_at_once = kUploadBytes / group * kGroupRows;
  if (rows_at_once == 0) {
    return invalid("rows of " + std::to_string(cols) + " columns: " + format_bytes(kUploadBytes) +
                   " at a time go to a device, and " + std::to_string(kGroupRows) + " take " +
                   format_bytes(group));
  }
  std::size_t turn = 0;
  for (std::int64_t row = slice.row_begin; row < slice.row_end; row += rows_at_once) {
    StoredSlice part = slice;
    part.row_begin = row;
    part.row_end = std::min(row + rows_at_once, slice.row_end);
    const auto bytes =
        static_cast<std::size_t>(packed_bytes(slice.dtype, part.row_end - row, cols));
    const std::span<std::byte> piece = pieces_[turn].first(bytes);
    std::ranges::fill(piece, std::byte{0});
    pack_weights(part, piece);
    // What the other piece had is there now.
    TRY(runtime_.synchronize());
    const auto at =
        static_cast<std::size_t>(packed_bytes(slice.dtype, row - slice.row_begin, cols));
    runtime_.copy_in(destination.data() + at, piece.data(), bytes);
    turn = 1 - turn;
  }
  return runtime_.synchronize();
}

}  // namespace plimsoll::cuda
