// BF16 weights times activations that are rounded to BF16 (AVX-512 BF16): VDPBF16PS adds the
// products of two columns to the f32 sum of each of sixteen rows, twice the multiply-adds of f32.
//
// GCC 12 takes the deliberately undefined operand inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/linear_kernel.h"

namespace plimsoll {
namespace {

constexpr int kTokens = 8;
constexpr std::int64_t kPairBytes = 4 * kTileRows;  // of the packed weights: two columns
constexpr std::int64_t kRunPairs = 32;              // that are summed before they are added up
constexpr std::int64_t kAhead = 1024;               // bytes, as in linear_avx512.cc

__m512bh as_pairs(__m512i words) { return reinterpret_cast<__m512bh>(words); }

// Column pairs in order: even ones in one chain of sums, odd ones in another, for any number of
// tokens. T tokens' sums of a run are added to `sums`.
template <int T>
[[gnu::always_inline]] inline void add_run(const std::byte* weights, const std::byte* panel,
                                           std::int64_t pairs, __m512* sums) {
  __m512 chains[2][T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) chains[0][t] = chains[1][t] = _mm512_setzero_ps();
  const auto add_pair = [&](int chain, __m512i pair) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      int word;
      __builtin_memcpy(&word, panel + kBf16PairBytes * t, sizeof word);
      chains[chain][t] =
          _mm512_dpbf16_ps(chains[chain][t], as_pairs(pair), as_pairs(_mm512_set1_epi32(word)));
    }
    panel += kBf16PairBytes * T;
    weights += kPairBytes;
  };
  std::int64_t p = 0;
  for (; p + 2 <= pairs; p += 2) {
    if constexpr (T <= 2) {
      _mm_prefetch(weights + kAhead, _MM_HINT_T0);
      _mm_prefetch(weights + kAhead + kPairBytes, _MM_HINT_T0);
    }
    add_pair(0, _mm512_loadu_si512(weights));
    add_pair(1, _mm512_loadu_si512(weights));
  }
  if (p < pairs) add_pair(0, _mm512_loadu_si512(weights));
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    sums[t] = _mm512_add_ps(sums[t], _mm512_add_ps(chains[0][t], chains[1][t]));
  }
}

template <int T>
void bf16_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
               float* tiles) {
  for (std::int64_t left = cols.all; left > 0; left -= cols.segment) {
    const std::int64_t count = left < cols.segment ? left : cols.segment;
    __m512 sums[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_ps();
    for (std::int64_t p = 0; p < count / 2; p += kRunPairs) {
      const std::int64_t pairs = count / 2 - p < kRunPairs ? count / 2 - p : kRunPairs;
      add_run<T>(group, panel, pairs, sums);
      group += kPairBytes * pairs;
      panel += kBf16PairBytes * T * pairs;
    }
    if (count % 2 == 1) {  // the last column of all
      const auto* last = reinterpret_cast<const __m256i*>(group);
      const __m512i weights = _mm512_cvtepu16_epi32(_mm256_loadu_si256(last));
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        int word;
        __builtin_memcpy(&word, panel + kBf16PairBytes * t, sizeof word);
        sums[t] = _mm512_dpbf16_ps(sums[t], as_pairs(weights), as_pairs(_mm512_set1_epi32(word)));
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(tiles + t * kTileRows, sums[t]);
    tiles += T * kTileRows;
  }
}

template <int T>
TileFunction tile_of(int tokens) {
  if constexpr (T == 0) {
    return nullptr;
  } else {
    return tokens == T ? &bf16_tile<T> : tile_of<T - 1>(tokens);
  }
}

// Sixteen columns at a time: eight pairs, each of which goes to a word of its own.
void round_row(const NormedRow& row, int token, int width, std::byte* panel) {
  panel += kBf16PairBytes * token;
  for (std::int64_t c = 0; c < row.cols; c += 16) {
    const std::int64_t left = row.cols - c < 16 ? row.cols - c : 16;
    const auto mask = static_cast<__mmask16>((1U << static_cast<unsigned>(left)) - 1U);
    __m512 x = _mm512_maskz_loadu_ps(mask, row.row + c);
    if (row.weight != nullptr) {
      x = _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(row.rms)),
                        _mm512_maskz_loadu_ps(mask, row.weight + c));
    }
    std::uint32_t pairs[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    for (std::int64_t p = 0; p < (left + 1) / 2; ++p, panel += kBf16PairBytes * width) {
      __builtin_memcpy(panel, &pairs[p], sizeof pairs[p]);
    }
  }
}

LinearKernel with_bf16(LinearKernel kernel) {
  kernel.round = round_row;
  kernel.bf16_tile = tile_of<kTokens>;
  return kernel;
}

}  // namespace

const LinearKernel& avx512bf16_linear_kernel() {
  static const LinearKernel kKernel = with_bf16(avx512_linear_kernel());
  return kKernel;
}

}  // namespace plimsoll
