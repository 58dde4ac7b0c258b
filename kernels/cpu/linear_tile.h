// LinearTile: the vector kernels of `linear`, written once over an instruction set S.
//
// Included by linear_avx2.cc and linear_avx512.cc alone, after they define S; in an anonymous
// namespace like linear_formats.h, and without standard library code, for the same reason.
#pragma once

#include "kernels/cpu/linear_formats.h"
#include "kernels/cpu/linear_kernel.h"

namespace plimsoll {
namespace {  // NOLINT(google-build-namespaces): see linear_formats.h

// f(0), ... f(T - 1), unrolled, so that arrays over tokens become registers.
template <int T, typename Function>
[[gnu::always_inline]] inline void each_token(const Function& f) {
  unroll<T>([&](auto t) __attribute__((always_inline)) { f(decltype(t)::value); });
}

// Sub-blocks [first, last) of a block, rows [lane, lane + kParts * S::kLanes).
template <class S, class Format, int T, int kParts>
[[gnu::always_inline]] inline const std::byte* add_block(const std::byte* block,
                                                         const std::byte* panel, int first,
                                                         int last, int lane,
                                                         typename S::F (*sums)[T]) {
  static_assert(kParts <= 2);
  if constexpr (Format::kSubBlocks == 1) {  // known when compiled: no loop
    first = 0;
    last = 1;
  }
  Format low(block, lane), high(block, lane + (kParts - 1) * S::kLanes);
  for (int s = 0; s < last; ++s) {
    low.sub_block(s);
    if constexpr (kParts == 2) high.sub_block(s);
    if (s < first) continue;
    S::template add_sub_block<Format, T>(low, panel, sums[0]);
    if constexpr (kParts == 2) S::template add_sub_block<Format, T>(high, panel, sums[1]);
    panel += kInt8BlockBytes * T;
  }
  return panel;
}

// Rows [lane, lane + kParts * S::kLanes) of a group times T tokens: all sub-blocks of the first
// panel, then those of the second that there are.
template <class S, class Format, int T, int kParts>
[[gnu::always_inline]] inline void int8_rows(const std::byte* group, const std::byte* panel,
                                             const TileColumns& cols, int lane, float* tile) {
  constexpr int kSubBlocks = Format::kSubBlocks;
  typename S::F sums[kParts][T];
  unroll<kParts * T>([&](auto i) __attribute__((always_inline)) {
    sums[decltype(i)::value / T][decltype(i)::value % T] = S::zero();
  });
  const std::int64_t count = cols.all / 32;
  const std::byte* block = group;
  const std::byte* end = group + count / kSubBlocks * Format::kBytes;
  const std::byte* x = panel;
  int first = 0, last = kSubBlocks;
  for (std::int64_t next = 0;; ++next) {
    for (; block != end; block += Format::kBytes) {
      if constexpr (T <= 2) S::prefetch(block, Format::kBytes);
      x = add_block<S, Format, T, kParts>(block, x, first, last, lane, sums);
    }
    while (next < count && cols.more[next] == 0) ++next;
    if (next == count) break;
    block = group + next / kSubBlocks * Format::kBytes;
    end = block + Format::kBytes;
    x = panel + cols.second + next * kInt8BlockBytes * T;
    first = static_cast<int>(next % kSubBlocks);
    last = first + 1;
  }
  unroll<kParts * T>([&](auto i) __attribute__((always_inline)) {
    constexpr int part = decltype(i)::value / T, t = decltype(i)::value % T;
    S::store(tile + t * kTileRows + lane + part * S::kLanes, sums[part][t]);
  });
}

template <class S, class Format, int T>
void int8_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
               float* tiles) {
  // Few tokens: read every cache line once. More: as many registers as there are for one half.
  constexpr int kParts = T <= 2 ? kTileRows / S::kLanes : 1;
  constexpr std::int64_t kCols = 32 * Format::kSubBlocks;
  const std::int64_t segment_bytes = cols.segment / kCols * Format::kBytes;
  const std::int64_t panel_bytes = cols.segment / 32 * kInt8BlockBytes * T;
  for (int lane = 0; lane < kTileRows; lane += kParts * S::kLanes) {
    const std::byte* weights = group;
    const std::byte* x = panel;
    float* tile = tiles;
    TileColumns segment = cols;
    for (std::int64_t left = cols.all; left > 0; left -= cols.segment) {
      segment.all = left < cols.segment ? left : cols.segment;
      int8_rows<S, Format, T, kParts>(weights, x, segment, lane, tile);
      weights += segment_bytes;
      x += panel_bytes;
      tile += T * kTileRows;
      segment.more += cols.segment / 32;
    }
  }
}

// Byte b of each lane as the quantised value, without its scale and min.
template <class S, class Format, int b>
[[gnu::always_inline]] inline typename S::F quant_to_float(typename S::I word) {
  if constexpr (Format::kSigned) {
    return S::to_float(
        S::template shift_right_signed<24>(S::template shift_left<24 - 8 * b>(word)));
  } else {
    const auto byte = S::bit_and(S::template shift_right<8 * b>(word), S::words(0xff));
    if constexpr (Format::kOffset == 0) return S::to_float(byte);
    return S::to_float(S::subtract_words(byte, S::words(Format::kOffset)));
  }
}

// Rows [lane, lane + S::kLanes) of one block as f32: weights[column][S::kLanes]. Its own function,
// so that each format is compiled once and not for every T.
template <class S, class Format>
[[gnu::noinline]] void dequantise_block(const std::byte* block, int lane, float* weights) {
  Format format(block, lane);
  for (int s = 0; s < Format::kSubBlocks; ++s, weights += 32 * S::kLanes) {
    format.sub_block(s);
    unroll<32>([&](auto column) __attribute__((always_inline)) {
      constexpr int k = decltype(column)::value;
      const auto quant = quant_to_float<S, Format, k % 4>(format.template vector<k / 4>());
      if constexpr (Format::kMin) {
        S::store(weights + k * S::kLanes, S::multiply_add(quant, format.scale, format.min));
      } else if constexpr (Format::kHalves) {
        const auto scale = S::multiply(format.scale, S::to_float(format.half_scales[k / 16]));
        S::store(weights + k * S::kLanes, S::multiply(quant, scale));
      } else {
        S::store(weights + k * S::kLanes, S::multiply(quant, format.scale));
      }
    });
  }
}

struct BlockReader {
  void (*dequantise)(const std::byte* block, int lane, float* weights);
  std::int64_t bytes;
  std::int64_t cols;
};

// Quantised weights times f32 activations: the weights become f32; columns are summed in runs of
// 32.
template <class S, int T>
[[gnu::noinline]] void f32_rows(const BlockReader& reader, const std::byte* group,
                                const std::byte* panel, std::int64_t cols, float* tile) {
  using F = typename S::F;
  float weights[256 * S::kLanes];
  for (int lane = 0; lane < kTileRows; lane += S::kLanes) {
    const std::byte* block = group;
    const std::byte* x = panel;
    F sums[T];
    each_token<T>([&](int t) __attribute__((always_inline)) { sums[t] = S::zero(); });
    for (std::int64_t c = 0; c < cols; c += reader.cols, block += reader.bytes) {
      reader.dequantise(block, lane, weights);
      for (std::int64_t first = 0; first < reader.cols; first += 32) {
        F partial[T];
        each_token<T>([&](int t) __attribute__((always_inline)) { partial[t] = S::zero(); });
        for (std::int64_t k = first; k < first + 32; ++k, x += 4 * T) {
          const F weight = S::load_floats(weights + k * S::kLanes);
          each_token<T>([&](int t) __attribute__((always_inline)) {
            partial[t] = S::multiply_add(weight, S::spread(x + 4 * t), partial[t]);
          });
        }
        each_token<T>([&](int t) __attribute__((always_inline)) {
          sums[t] = S::add(sums[t], partial[t]);
        });
      }
    }
    each_token<T>([&](int t) __attribute__((always_inline)) {
      S::store(tile + t * kTileRows + lane, sums[t]);
    });
  }
}

template <class S, class Format, int T>
void f32_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
              float* tiles) {
  constexpr BlockReader kReader{.dequantise = &dequantise_block<S, Format>,
                                .bytes = Format::kBytes,
                                .cols = 32 * Format::kSubBlocks};
  for (std::int64_t left = cols.all; left > 0; left -= cols.segment) {
    f32_rows<S, T>(kReader, group, panel, left < cols.segment ? left : cols.segment, tiles);
    group += cols.segment / kReader.cols * kReader.bytes;
    panel += cols.segment * 4 * T;
    tiles += T * kTileRows;
  }
}

// The even or odd column of a pair of BF16 columns: f32 has the same upper bits.
template <class S, bool is_odd>
[[gnu::always_inline]] inline typename S::F widen_half(const std::byte* pairs) {
  const typename S::I pair = S::load(pairs);
  if constexpr (is_odd) {
    return S::as_floats(S::bit_and(pair, S::words(static_cast<int>(0xffff0000))));
  }
  return S::as_floats(S::template shift_left<16>(pair));
}

// F32, F16 and BF16 weights: kSize bytes each; S::floats widens a vector of them. Rows
// [lane, lane + kParts * S::kLanes) of a group times T tokens; columns are summed in runs of 32.
template <class S, DType dtype, int T, int kParts>
[[gnu::always_inline]] inline void float_rows(const std::byte* weights, const std::byte* panel,
                                              std::int64_t cols, int lane, float* tile) {
  using F = typename S::F;
  constexpr int kSize = dtype == DType::f32 ? 4 : 2;
  F sums[kParts * T];
  const auto each_sum = [](const auto& f) __attribute__((always_inline)) { unroll<kParts * T>(f); };
  each_sum([&](auto i) __attribute__((always_inline)) { sums[decltype(i)::value] = S::zero(); });
  for (std::int64_t c = 0; c < cols; c += 32) {
    const std::int64_t end = c + 32 < cols ? c + 32 : cols;
    F partial[kParts * T];
    each_sum([&](auto i)
                 __attribute__((always_inline)) { partial[decltype(i)::value] = S::zero(); });
    // Column x of the panel; `weight_of` gives the weights from a row on.
    const auto add_column = [&](const std::byte* x, const auto& weight_of)
        __attribute__((always_inline)) {
      F weight[kParts];
      unroll<kParts>([&](auto part) __attribute__((always_inline)) {
        weight[decltype(part)::value] = weight_of(S::kLanes * decltype(part)::value + lane);
      });
      each_sum([&](auto i) __attribute__((always_inline)) {
        constexpr int at = decltype(i)::value, part = at / T, t = at % T;
        partial[at] = S::multiply_add(weight[part], S::spread(x + 4 * t), partial[at]);
      });
    };
    std::int64_t k = c;
    if constexpr (dtype == DType::bf16) {  // the even columns of the run, then the odd ones
      const std::int64_t pairs = (end - c) / 2;
      unroll<2>([&](auto half) __attribute__((always_inline)) {
        constexpr bool is_odd = decltype(half)::value == 1;
        const std::byte* pair = weights;
        const std::byte* x = panel + (is_odd ? 4 * T : 0);
        for (std::int64_t i = 0; i < pairs; ++i, pair += kVector, x += 8 * T) {
          if constexpr (T <= 2 && !is_odd) S::prefetch(pair, 1);
          add_column(
              x, [&](int row) __attribute__((always_inline)) {
                return widen_half<S, is_odd>(pair + 4 * row);
              });
        }
      });
      k += 2 * pairs;
      weights += pairs * kVector;
      panel += pairs * 8 * T;
    }
    for (; k < end; ++k, weights += kSize * kTileRows, panel += 4 * T) {
      if constexpr (T <= 2) S::prefetch(weights, 1);
      add_column(
          panel, [&](int row) __attribute__((always_inline)) {
            return S::template floats<dtype>(weights + kSize * row);
          });
    }
    each_sum([&](auto i) __attribute__((always_inline)) {
      constexpr int at = decltype(i)::value;
      sums[at] = S::add(sums[at], partial[at]);
    });
  }
  each_sum([&](auto i) __attribute__((always_inline)) {
    constexpr int at = decltype(i)::value, part = at / T, t = at % T;
    S::store(tile + t * kTileRows + lane + part * S::kLanes, sums[at]);
  });
}

template <class S, DType dtype, int T>
void float_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
                float* tiles) {
  constexpr int kParts = T <= 2 ? kTileRows / S::kLanes : 1;  // as in int8_tile
  constexpr std::int64_t kSize = dtype == DType::f32 ? 4 : 2;
  for (std::int64_t left = cols.all; left > 0; left -= cols.segment) {
    const std::int64_t count = left < cols.segment ? left : cols.segment;
    for (int lane = 0; lane < kTileRows; lane += kParts * S::kLanes) {
      float_rows<S, dtype, T, kParts>(group, panel, count, lane, tiles);
    }
    group += cols.segment * kSize * kTileRows;
    panel += cols.segment * 4 * T;
    tiles += T * kTileRows;
  }
}

// e^x within 2 ulp: x = n ln 2 + r, a polynomial in r, n added to the exponent.
template <class S>
[[gnu::always_inline]] inline typename S::F exponential(typename S::F x) {
  using F = typename S::F;
  x = S::min(S::max(x, S::spread_float(-87.0F)), S::spread_float(88.0F));
  const typename S::I n = S::round(S::multiply(x, S::spread_float(1.44269504F)));
  const F steps = S::to_float(n);
  F r = S::multiply_add(steps, S::spread_float(-0.693359375F), x);  // ln 2 in two parts
  r = S::multiply_add(steps, S::spread_float(2.12194440e-4F), r);
  F p = S::spread_float(1.9875691500e-4F);
  constexpr float kCoefficients[] = {1.3981999507e-3F,
                                     8.3334519073e-3F,
                                     4.1665795894e-2F,
                                     1.6666665459e-1F,
                                     5.0000001201e-1F,
                                     1.0F,
                                     1.0F};
  for (int i = 0; i < 7; ++i) p = S::multiply_add(p, r, S::spread_float(kCoefficients[i]));
  return S::scale_by_power(p, n);
}

template <class S>
[[gnu::always_inline]] inline typename S::F silu(typename S::F x) {
  const typename S::F one = S::spread_float(1.0F);
  return S::divide(x, S::add(one, exponential<S>(S::negate(x))));
}

template <class S>
[[gnu::always_inline]] inline typename S::F gelu(typename S::F x) {
  using F = typename S::F;
  const F one = S::spread_float(1.0F);
  const F square = S::multiply(x, x);
  const F cubic = S::multiply_add(S::multiply(S::spread_float(kGeluCubic), square), x, x);
  const F power = exponential<S>(S::multiply(S::spread_float(-kGeluTwice), cubic));
  return S::divide(x, S::add(one, power));
}

template <class S>
void add_tiles(const float* tiles, int count, int tokens, double* sums) {
  constexpr int kDoubles = S::kLanes / 2, kVectors = kTileRows / kDoubles;
  for (int t = 0; t < tokens; ++t, tiles += kTileRows, sums += kTileRows) {
    typename S::D sum[kVectors];
    const auto each_vector = [](const auto& f) __attribute__((always_inline)) {
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) { f(decltype(v)::value); });
    };
    each_vector([&](int v) __attribute__((always_inline)) {
      sum[v] = S::load_doubles(sums + v * kDoubles);
    });
    const float* tile = tiles;
    for (int i = 0; i < count; ++i, tile += tokens * kTileRows) {
      each_vector([&](int v) __attribute__((always_inline)) {
        sum[v] = S::add_doubles(sum[v], S::widen(tile + v * kDoubles));
      });
    }
    each_vector([&](int v) __attribute__((always_inline)) {
      S::store_doubles(sums + v * kDoubles, sum[v]);
    });
  }
}

template <class S>
void finish_sums(Epilogue epilogue, const double* sums, const TileTarget& target) {
  constexpr int kDoubles = S::kLanes / 2;
  const bool whole = target.first == 0 && target.last == kTileRows;
  for (int t = 0; t < target.tokens; ++t, sums += kTileRows) {
    if (epilogue == Epilogue::partial) {
      double* to = target.sums + t * target.stride;
      for (int r = target.first; r < target.last; ++r, ++to) *to = sums[r];
      continue;
    }
    float* out = target.out + t * target.stride;
    for (int r = 0; whole && r < kTileRows; r += kDoubles) {
      S::store_narrowed(out + r, S::add_doubles(S::widen(out + r), S::load_doubles(sums + r)));
    }
    for (int r = target.first; !whole && r < target.last; ++r, ++out) {
      *out = static_cast<float>(static_cast<double>(*out) + sums[r]);
    }
  }
}

template <class S>
void finish(Epilogue epilogue, const float* tile, const float* up, const TileTarget& target) {
  const bool whole = target.first == 0 && target.last == kTileRows;
  float* out = target.out;
  for (int t = 0; t < target.tokens; ++t, out += target.stride, tile += kTileRows) {
    float rows[kTileRows];
    float* to = whole ? out : rows;
    for (int lane = 0; lane < kTileRows; lane += S::kLanes) {
      typename S::F y = S::load_floats(tile + lane);
      if (epilogue == Epilogue::silu_mul) {
        y = S::multiply(silu<S>(y), S::load_floats(up + t * kTileRows + lane));
      } else if (epilogue == Epilogue::gelu_mul) {
        y = S::multiply(gelu<S>(y), S::load_floats(up + t * kTileRows + lane));
      }
      S::store(to + lane, y);
    }
    if (whole) continue;
    for (int r = target.first; r < target.last; ++r) {
      out[r - target.first] = rows[r];
    }
  }
}

// The function for a panel of `tokens` tokens, 1 <= tokens <= T.
template <class S, class Format, int T>
TileFunction int8_tile_for(int tokens) {
  if constexpr (T == 0) {
    return nullptr;
  } else {
    return tokens == T ? &int8_tile<S, Format, T> : int8_tile_for<S, Format, T - 1>(tokens);
  }
}

template <class S, class Format, int T>
TileFunction f32_tile_for(int tokens) {
  if constexpr (T == 0) {
    return nullptr;
  } else {
    return tokens == T ? &f32_tile<S, Format, T> : f32_tile_for<S, Format, T - 1>(tokens);
  }
}

template <class S, DType dtype, int T>
TileFunction float_tile_for(int tokens) {
  if constexpr (T == 0) {
    return nullptr;
  } else {
    return tokens == T ? &float_tile<S, dtype, T> : float_tile_for<S, dtype, T - 1>(tokens);
  }
}

template <class S, class Format>
TileFunction quantised_tile_for(Activations activations, int tokens) {
  return activations == Activations::int8 ? int8_tile_for<S, Format, S::kPanelTokens>(tokens)
                                          : f32_tile_for<S, Format, S::kPanelTokens>(tokens);
}

template <class S>
TileFunction tile_for(DType dtype, Activations activations, int tokens) {
  switch (dtype) {
    case DType::f32:
      return float_tile_for<S, DType::f32, S::kPanelTokens>(tokens);
    case DType::f16:
      return float_tile_for<S, DType::f16, S::kPanelTokens>(tokens);
    case DType::bf16:
      return float_tile_for<S, DType::bf16, S::kPanelTokens>(tokens);
    case DType::q4_0:
      return quantised_tile_for<S, FormatQ4_0<S>>(activations, tokens);
    case DType::q4_1:
      return quantised_tile_for<S, FormatQ4_1<S>>(activations, tokens);
    case DType::q5_0:
      return quantised_tile_for<S, FormatQ5_0<S>>(activations, tokens);
    case DType::q5_1:
      return quantised_tile_for<S, FormatQ5_1<S>>(activations, tokens);
    case DType::q8_0:
      return quantised_tile_for<S, FormatQ8_0<S>>(activations, tokens);
    case DType::q4_k:
      return quantised_tile_for<S, FormatQ4_K<S>>(activations, tokens);
    case DType::q5_k:
      return quantised_tile_for<S, FormatQ5_K<S>>(activations, tokens);
    case DType::q6_k:
      return quantised_tile_for<S, FormatQ6_K<S>>(activations, tokens);
  }
  return nullptr;
}

}  // namespace
}  // namespace plimsoll
