// TensorView: a matrix in memory: pointer, type, rows, columns, row stride. Owns nothing.
//
// SumsView: the same for sums in f64 that ranks have still to add up.
#pragma once

#include <cstdint>

#include "shared/base/check.h"
#include "shared/model/dtype.h"

namespace plimsoll {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next

  float* f32() const {
    CHECK(dtype == DType::f32);
    return static_cast<float*>(data);
  }
  float* row(std::int64_t index) const { return f32() + index * stride; }
  TensorView slice_rows(std::int64_t begin, std::int64_t count) const {
    TensorView view = *this;
    view.data = row(begin);
    view.rows = count;
    return view;
  }
};

struct SumsView {
  double* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next

  double* row(std::int64_t index) const { return data + index * stride; }
  SumsView slice_rows(std::int64_t begin, std::int64_t count) const {
    return {row(begin), count, cols, stride};
  }
};

inline SumsView sums_view(double* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols};
}

inline TensorView f32_view(float* data, std::int64_t rows, std::int64_t cols) {
  return {data, DType::f32, rows, cols, cols};
}

}  // namespace plimsoll
