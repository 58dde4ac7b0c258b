// RankSum: the arithmetic and copying of collectives: sums in rank order, runs of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace plimsoll {

// accumulate[i] += parts[0][i] + parts[1][i] + …: the parts first, in order, in f32.
void add_in_rank_order(std::span<const float* const> parts, float* accumulate, std::int64_t count);

// Copies past the caches when it is long, since another core reads it next. Ends with a store fence
// where one is needed: a release store afterwards publishes the copy.
void copy_to_slot(const float* from, std::int64_t count, float* slot);

// Elements [begin, begin + count) of a matrix, counted row by row, as runs of memory:
// visit(data, offset, length), where offset counts from `begin`.
template <typename Visit>
void for_each_run(const TensorView& matrix, std::int64_t begin, std::int64_t count, Visit visit) {
  if (matrix.stride == matrix.cols) {
    if (count > 0) visit(matrix.f32() + begin, std::int64_t{0}, count);
    return;
  }
  for (std::int64_t offset = 0; offset < count;) {
    const std::int64_t col = (begin + offset) % matrix.cols;
    const std::int64_t length = std::min(matrix.cols - col, count - offset);
    visit(matrix.row((begin + offset) / matrix.cols) + col, offset, length);
    offset += length;
  }
}

}  // namespace plimsoll
