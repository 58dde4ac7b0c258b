// RoundedRows: what the kernels of `linear` see of activations, by plain loops (linear_kernel.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/packed_layout.h"

namespace plimsoll {

// x[32] rounded to int8, and what that leaves of it.
struct Rounded {
  explicit Rounded(const float* x) {
    float amax = 0;
    for (int k = 0; k < 32; ++k) amax = std::max(amax, std::fabs(x[k]));
    const float scale = amax / 127.0F, inverse = amax > 0 ? 127.0F / amax : 0;
    for (int k = 0; k < 32; ++k) {
      const float q = std::nearbyint(x[k] * inverse);
      value[k] = static_cast<double>(scale) * static_cast<double>(q);
      rest[k] = std::fma(q, -scale, x[k]);
    }
  }
  double value[32];
  float rest[32];
};

// Whether x[32], of a row of that mean square, is rounded twice.
inline bool has_outlier(const float* x, double row_square, bool is_shared) {
  double largest = 0, square = 0;
  for (int k = 0; k < 32; ++k) {
    const double value = static_cast<double>(x[k]) * static_cast<double>(x[k]);
    largest = std::max(largest, value);
    square += value / 32;
  }
  return largest > (is_shared ? 28 * square : 64 * row_square);
}

// What the kernels see of rows of activations.
inline std::vector<double> as_rounded(const std::vector<float>& in, std::size_t cols,
                                      bool is_shared) {
  std::vector<double> seen(in.size());
  for (std::size_t begin = 0; begin < in.size(); begin += cols) {
    double square = 0;
    for (std::size_t c = begin; c < begin + cols; ++c) {
      square += static_cast<double>(in[c]) * static_cast<double>(in[c]) / static_cast<double>(cols);
    }
    for (std::size_t c = begin; c < begin + cols; c += 32) {
      const Rounded first(in.data() + c), second(first.rest);
      const bool twice = has_outlier(in.data() + c, square, is_shared);
      for (std::size_t k = 0; k < 32; ++k) {
        seen[c + k] = first.value[k] + (twice ? second.value[k] : 0);
      }
    }
  }
  return seen;
}

// As bf16: to nearest, to even. Of finite values.
inline std::vector<double> as_bf16(const std::vector<float>& in) {
  std::vector<double> seen;
  for (const float x : in) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
    seen.push_back(static_cast<double>(std::bit_cast<float>(rounded)));
  }
  return seen;
}

// What the kernels of a path see of activations of weights of a type, where no rank shares them.
inline std::vector<double> as_seen(const std::vector<float>& in, std::int64_t cols, DType dtype,
                                   CpuPath path, Activations activations) {
  if (activations == Activations::int8) {
    if (is_quantised(dtype)) return as_rounded(in, static_cast<std::size_t>(cols), false);
    if (dtype == DType::bf16 && linear_kernel(path).round != nullptr) return as_bf16(in);
  }
  return {in.begin(), in.end()};
}

}  // namespace plimsoll
