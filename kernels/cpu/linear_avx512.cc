// The AVX-512 (F, BW, VL, DQ, VNNI) kernels of `linear`: sixteen rows a register.
//
// GCC 12 takes the deliberately undefined operand inside its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/linear_formats.h"
#include "kernels/cpu/linear_kernel.h"

namespace plimsoll {
namespace {

struct Avx512 {
  using I = __m512i;
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kPanelTokens = 8;
  static constexpr bool kMultipliesSignedWeights = false;

  static I load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static I words(int value) { return _mm512_set1_epi32(value); }
  static I bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I bit_xor(I a, I b) { return _mm512_xor_si512(a, b); }
  template <unsigned n>
  static I shift_left(I a) {
    return _mm512_slli_epi32(a, n);
  }
  template <unsigned n>
  static I shift_right(I a) {
    return _mm512_srli_epi32(a, n);
  }
  template <unsigned n>
  static I shift_right_signed(I a) {
    return _mm512_srai_epi32(a, n);
  }
  static I subtract_words(I a, I b) { return _mm512_sub_epi32(a, b); }
  // Two int8 of each row as int16 pairs, one pair a lane.
  static I bytes_to_words(const std::byte* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void prefetch(const std::byte* p, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) _mm_prefetch(p + kAhead + i, _MM_HINT_T0);
  }

  // Eight doubles.
  using D = __m512d;
  static D load_doubles(const double* p) { return _mm512_loadu_pd(p); }
  static D widen(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
  static D add_doubles(D a, D b) { return _mm512_add_pd(a, b); }
  static void store_doubles(double* p, D a) { _mm512_storeu_pd(p, a); }
  static void store_narrowed(float* p, D a) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(a)); }

  static F zero() { return _mm512_setzero_ps(); }
  static F halves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <DType dtype>
  static F floats(const std::byte* p) {
    if constexpr (dtype == DType::f32) return _mm512_loadu_ps(p);
    if constexpr (dtype == DType::f16) return halves(p);
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static F as_floats(I a) { return _mm512_castsi512_ps(a); }
  static F load_floats(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F spread(const std::byte* p) {
    float value;
    __builtin_memcpy(&value, p, 4);
    return _mm512_set1_ps(value);
  }
  static F spread_float(float value) { return _mm512_set1_ps(value); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
  static F divide(F a, F b) { return _mm512_div_ps(a, b); }
  static F multiply_add(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0F)); }
  static F absolute(F a) { return _mm512_abs_ps(a); }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static I round(F a) { return _mm512_cvtps_epi32(a); }
  static F scale_by_power(F a, I n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(n, 23)));
  }
  // The larger of two floats without sign by their bits: a NaN is larger than all numbers.
  static F max_bits(F a, F b) {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static float max_lane_bits(F a) {
    const int bits = _mm512_reduce_max_epi32(_mm512_castps_si512(a));
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
  }

  // 32 floats times `inverse`, rounded to nearest even; sums of the two halves.
  static void quantise32(const F* x, float inverse, std::byte* q, std::int32_t* sums) {
    for (int i = 0; i < 2; ++i) {
      const I n = round(multiply(x[i], _mm512_set1_ps(inverse)));
      sums[i] = _mm512_reduce_add_epi32(n);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm512_cvtsepi32_epi8(n));
    }
  }

  static void write_sums(float, const std::int32_t* sums, std::byte* all, std::byte* low) {
    const std::int32_t all_sum = -8 * (sums[0] + sums[1]), low_sum = -32 * sums[0];
    __builtin_memcpy(all, &all_sum, 4);
    __builtin_memcpy(low, &low_sum, 4);
  }

  // Adds one sub-block of sixteen rows times T tokens to `sum`:
  //   sum += d_t * (scale * sum((byte - offset) * q) + min * sum(q))
  template <class Format, int T>
  [[gnu::always_inline]] static void add_sub_block(const Format& format, const std::byte* panel,
                                                   F* sum) {
    if constexpr (Format::kHalves) {
      add_halves<Format, T>(format, panel, sum);
    } else {
      add_whole<Format, T>(format, panel, sum);
    }
  }

 private:
  static constexpr std::int64_t kAhead = 1024;  // bytes; covers the latency of memory at 20 GB/s

  static I spread_word(const std::byte* p) {
    int word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }

  // -offset * sum(q), from -8 times it.
  template <class Format>
  static I start(const std::byte* eight_sums) {
    constexpr int kOffset = Format::kOffset;
    static_assert(kOffset == 0 || kOffset == 8 || kOffset == 16 || kOffset == 128);
    if constexpr (kOffset == 0) return _mm512_setzero_si512();
    const I sums = spread_word(eight_sums);
    if constexpr (kOffset == 16) return shift_left<1>(sums);
    if constexpr (kOffset == 128) return shift_left<4>(sums);
    return sums;
  }

  template <class Format, int T>
  [[gnu::always_inline]] static void add_whole(const Format& format, const std::byte* panel,
                                               F* sum) {
    // Few tokens: two chains each, since one would wait for the multiplier's latency.
    constexpr int kChains = T <= 2 ? 2 : 1;
    I products[kChains * T];
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      products[t] = start<Format>(panel + 36 * T + 4 * t);
      if constexpr (kChains == 2) products[T + t] = _mm512_setzero_si512();
    });
    unroll<8>([&](auto vector) __attribute__((always_inline)) {
      constexpr int v = decltype(vector)::value;
      const I weights = format.template vector<v>();
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value, at = v % kChains * T + t;
        products[at] =
            _mm512_dpbusd_epi32(products[at], weights, spread_word(panel + 32 * t + 4 * v));
      });
    });
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      if constexpr (kChains == 2) products[t] = _mm512_add_epi32(products[t], products[T + t]);
      const F d = spread(panel + 32 * T + 4 * t), product = to_float(products[t]);
      if constexpr (Format::kMin) {
        const F eighth_min = multiply(format.min, spread_float(-0.125F));
        const F eight_sums = to_float(spread_word(panel + 36 * T + 4 * t));
        const F scaled = multiply_add(eighth_min, eight_sums, multiply(product, format.scale));
        sum[t] = multiply_add(scaled, d, sum[t]);
      } else {
        sum[t] = multiply_add(product, multiply(format.scale, d), sum[t]);
      }
    });
  }

  // The same where columns 0-15 and 16-31 have scales of their own.
  template <class Format, int T>
  [[gnu::always_inline]] static void add_halves(const Format& format, const std::byte* panel,
                                                F* sum) {
    static_assert(Format::kOffset == 32);
    F scaled[T];
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      constexpr int h = decltype(half)::value;
      const F scale = multiply(format.scale, to_float(format.half_scales[h]));
      I products[T];
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value;
        products[t] = spread_word(panel + 40 * T + 4 * t);
        if constexpr (h == 1) {
          const I all = shift_left<2>(spread_word(panel + 36 * T + 4 * t));
          products[t] = subtract_words(all, products[t]);
        }
      });
      unroll<4>([&](auto vector) __attribute__((always_inline)) {
        constexpr int v = 4 * h + decltype(vector)::value;
        const I weights = format.template vector<v>();
        unroll<T>([&](auto token) __attribute__((always_inline)) {
          constexpr int t = decltype(token)::value;
          products[t] =
              _mm512_dpbusd_epi32(products[t], weights, spread_word(panel + 32 * t + 4 * v));
        });
      });
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value;
        const F product = to_float(products[t]);
        scaled[t] = h == 0 ? multiply(product, scale) : multiply_add(product, scale, scaled[t]);
      });
    });
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      sum[t] = multiply_add(scaled[t], spread(panel + 32 * T + 4 * t), sum[t]);
    });
  }
};

}  // namespace
}  // namespace plimsoll

#include "kernels/cpu/linear_panel.h"
#include "kernels/cpu/linear_tile.h"

namespace plimsoll {

const LinearKernel& avx512_linear_kernel() {
  static constexpr LinearKernel kKernel = {
      .panel_tokens = Avx512::kPanelTokens,
      .rms_of = rms_of<Avx512>,
      .quantise = quantise<Avx512>,
      .spread = spread<Avx512>,
      .tile = tile_for<Avx512>,
      .add_tiles = add_tiles<Avx512>,
      .finish_sums = finish_sums<Avx512>,
      .finish = finish<Avx512>,
  };
  return kKernel;
}

}  // namespace plimsoll
