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

  // products[t] = sum over the sub-block of (byte - offset) * q, times the half scales if any.
  template <class Format, int T>
  [[gnu::always_inline]] static void dot(const Format& format, const std::byte* panel,
                                         I* products) {
    if constexpr (Format::kHalves) {
      dot_halves<Format, T>(format, panel, products);
    } else {
      // Few tokens: two chains each, since one would wait for the multiplier's latency.
      constexpr int kChains = T <= 2 ? 2 : 1;
      I sums[kChains * T];
      start<Format, T>(panel + 40 * T, sums);
      if constexpr (kChains == 2) {
        unroll<T>([&](auto token) __attribute__((always_inline)) {
          sums[T + decltype(token)::value] = _mm512_setzero_si512();
        });
      }
      unroll<8>([&](auto vector) __attribute__((always_inline)) {
        constexpr int v = decltype(vector)::value;
        const I weights = format.template vector<v>();
        unroll<T>([&](auto token) __attribute__((always_inline)) {
          constexpr int t = decltype(token)::value, sum = v % kChains * T + t;
          sums[sum] = _mm512_dpbusd_epi32(sums[sum], weights, spread_word(panel + 32 * t + 4 * v));
        });
      });
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value;
        products[t] =
            kChains == 1 ? sums[t] : _mm512_add_epi32(sums[t], sums[(kChains - 1) * T + t]);
      });
    }
  }

 private:
  static constexpr std::int64_t kAhead = 1024;  // bytes; covers the latency of memory at 20 GB/s

  static I spread_word(const std::byte* p) {
    int word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }

  // sums[t] = -offset * sum(q), from the negated half sums of the panel.
  template <class Format, int T>
  [[gnu::always_inline]] static void start(const std::byte* half_sums, I* sums) {
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      if constexpr (Format::kOffset == 0) {
        sums[t] = _mm512_setzero_si512();
      } else {
        sums[t] =
            _mm512_madd_epi16(_mm512_set1_epi16(Format::kOffset), spread_word(half_sums + 4 * t));
      }
    });
  }

  template <class Format, int T>
  [[gnu::always_inline]] static void dot_halves(const Format& format, const std::byte* panel,
                                                I* products) {
    static_assert(Format::kOffset == 32);
    const std::byte* half_sums = panel + 40 * T;
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      products[t] = shift_left<5>(_mm512_madd_epi16(format.pair, spread_word(half_sums + 4 * t)));
    });
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      constexpr int h = decltype(half)::value;
      I sums[T];
      unroll<4>([&](auto vector) __attribute__((always_inline)) {
        constexpr int v = 4 * h + decltype(vector)::value;
        const I weights = format.template vector<v>();
        unroll<T>([&](auto token) __attribute__((always_inline)) {
          constexpr int t = decltype(token)::value;
          sums[t] = _mm512_dpbusd_epi32(v % 4 == 0 ? _mm512_setzero_si512() : sums[t], weights,
                                        spread_word(panel + 32 * t + 4 * v));
        });
      });
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value;
        products[t] =
            _mm512_add_epi32(products[t], _mm512_mullo_epi32(sums[t], format.half_scales[h]));
      });
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
