// LinearPanel: how the vector kernels norm activations and lay them out in panels.
//
// Included by linear_avx2.cc and linear_avx512.cc alone, as linear_tile.h is, and under its rules.
#pragma once

#include "kernels/cpu/linear_kernel.h"

namespace plimsoll {
namespace {  // NOLINT(google-build-namespaces): see linear_formats.h

template <class S>
[[gnu::always_inline]] inline typename S::F normed(const NormedRow& row, std::int64_t c) {
  const typename S::F x = S::load_floats(row.row + c);
  if (row.weight == nullptr) return x;
  return S::multiply(S::multiply(x, S::spread_float(row.rms)), S::load_floats(row.weight + c));
}

template <class S>
float rms_of(const float* row, std::int64_t cols, float eps) {
  constexpr int kChains = 32 / S::kLanes;
  typename S::F sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = S::zero();
  std::int64_t c = 0;
  for (; c + 32 <= cols; c += 32) {
    for (int i = 0; i < kChains; ++i) {
      const typename S::F x = S::load_floats(row + c + i * S::kLanes);
      sums[i] = S::multiply_add(x, x, sums[i]);
    }
  }
  for (int i = kChains / 2; i > 0; i /= 2) {
    for (int j = 0; j < i; ++j) sums[j] = S::add(sums[j], sums[j + i]);
  }
  float lanes[S::kLanes];
  S::store(lanes, sums[0]);
  for (int i = S::kLanes / 2; i > 0; i /= 2) {
    for (int j = 0; j < i; ++j) lanes[j] += lanes[j + i];
  }
  float sum = lanes[0];
  for (; c < cols; ++c) sum += row[c] * row[c];
  return 1.0F / __builtin_sqrtf(sum / static_cast<float>(cols) + eps);
}

// Below this a block is zero: its inverse would overflow.
constexpr float kSmallestAmax = 1e-30F;
constexpr float kFiniteMax = 3.40282347e+38F;

// The largest of 32 magnitudes by their bits: infinite or a NaN where one of them is.
template <class S>
[[gnu::always_inline]] inline float largest(const typename S::F* x) {
  typename S::F most = S::zero();
  for (int i = 0; i < 32 / S::kLanes; ++i) most = S::max_bits(most, S::absolute(x[i]));
  return S::max_lane_bits(most);
}

// Writes 32 columns, whose largest magnitude is amax, and leaves in x what the rounding left. A
// block that holds an infinity or a NaN gets a NaN as scale, so that its token's outputs show it.
template <class S>
[[gnu::always_inline]] inline void write_block(typename S::F* x, float amax, bool more, int token,
                                               int width, std::byte* block) {
  constexpr int kVectors = 32 / S::kLanes;
  float scale = amax / 127.0F, inverse = 127.0F / amax;
  if (!(amax > kSmallestAmax && amax <= kFiniteMax)) {
    scale = amax <= kSmallestAmax ? 0.0F : __builtin_nanf("");
    inverse = 0;
    for (int i = 0; i < kVectors; ++i) x[i] = S::zero();
  }
  std::int32_t sums[2];  // of columns 0-15 and 16-31
  S::quantise32(x, inverse, block + 32 * token, sums);
  if (more) {
    for (int i = 0; i < kVectors; ++i) {
      const typename S::F q = S::to_float(S::round(S::multiply(x[i], S::spread_float(inverse))));
      x[i] = S::multiply_add(q, S::spread_float(-scale), x[i]);
    }
  }
  __builtin_memcpy(block + 32 * width + 4 * token, &scale, 4);
  S::write_sums(scale, sums, block + 36 * width + 4 * token, block + 40 * width + 4 * token);
}

template <class S>
float mean_square(const NormedRow& row) {
  typename S::F squares = S::zero();
  for (std::int64_t c = 0; c < row.cols; c += S::kLanes) {
    const typename S::F x = normed<S>(row, c);
    squares = S::multiply_add(x, x, squares);
  }
  float lanes[S::kLanes], sum = 0;
  S::store(lanes, squares);
  for (float lane : lanes) sum += lane;
  return sum / static_cast<float>(row.cols);
}

// Of 32 values.
template <class S>
[[gnu::always_inline]] inline float mean_square_of(const typename S::F* x) {
  typename S::F squares = S::zero();
  for (int i = 0; i < 32 / S::kLanes; ++i) squares = S::multiply_add(x[i], x[i], squares);
  float lanes[S::kLanes], sum = 0;
  S::store(lanes, squares);
  for (float lane : lanes) sum += lane;
  return sum / 32;
}

template <class S>
void quantise(const NormedRow& row, int token, int width, const Int8Panel& panel) {
  constexpr int kVectors = 32 / S::kLanes;
  const float limit = panel.is_shared ? 0 : kOutlierOfRow * mean_square<S>(row);
  for (std::int64_t b = 0; b < row.cols / 32; ++b) {
    typename S::F x[kVectors];
    for (int i = 0; i < kVectors; ++i) x[i] = normed<S>(row, 32 * b + i * S::kLanes);
    const float amax = largest<S>(x);
    const bool more =
        amax * amax > (panel.is_shared ? kOutlierOfBlock * mean_square_of<S>(x) : limit);
    write_block<S>(x, amax, more, token, width, panel.first + b * kInt8BlockBytes * width);
    std::byte* second = panel.second + b * kInt8BlockBytes * width;
    if (more) {
      write_block<S>(x, largest<S>(x), false, token, width, second);
    } else {  // its q may be anything
      const float zero = 0;
      __builtin_memcpy(second + 32 * width + 4 * token, &zero, 4);
      __builtin_memcpy(second + 36 * width + 4 * token, &zero, 4);
    }
    std::uint8_t* flags = panel.more + b * kPanelTokensMax;
    flags[token] = more ? 1 : 0;
    for (int t = width; token == 0 && t < kPanelTokensMax; ++t) flags[t] = 0;
  }
}

template <class S>
void spread(const NormedRow& row, int token, int width, std::byte* panel) {
  panel += 4 * token;
  std::int64_t c = 0;
  for (; c + S::kLanes <= row.cols; c += S::kLanes) {
    float x[S::kLanes];
    S::store(x, normed<S>(row, c));
    for (int i = 0; i < S::kLanes; ++i, panel += 4 * width) __builtin_memcpy(panel, &x[i], 4);
  }
  for (; c < row.cols; ++c, panel += 4 * width) {
    const float x = row.weight == nullptr ? row.row[c] : row.row[c] * row.rms * row.weight[c];
    __builtin_memcpy(panel, &x, 4);
  }
}

}  // namespace
}  // namespace plimsoll
