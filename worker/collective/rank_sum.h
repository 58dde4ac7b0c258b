// RankSum: the arithmetic and copying of collectives: sums in rank order, runs of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/tensor.h"
#include "shared/base/units.h"

namespace plimsoll {

// accumulate[i] += parts[0][i] + parts[1][i] + …: the parts first, in order, then what is there, in
// f64 and rounded once.
void add_in_rank_order(std::span<const double* const> parts, float* accumulate, std::int64_t count);

// Copies past the caches when it is long, since another core reads it next. Ends with a store fence
// where one is needed: a release store afterwards publishes the copy.
void copy_to_slot(const void* from, Bytes count, void* slot);

// Elements [begin, begin + count) of a matrix, counted row by row, as runs of memory:
// visit(data, offset, length), where offset counts from `begin`.
template <typename View, typename Visit>
void for_each_run(const View& matrix, std::int64_t begin, std::int64_t count, Visit visit) {
  if (matrix.stride == matrix.cols) {
    if (count > 0) visit(matrix.row(0) + begin, std::int64_t{0}, count);
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
