// The AVX2, FMA and F16C kernels of `linear`: eight rows a register.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/linear_formats.h"
#include "kernels/cpu/linear_kernel.h"

namespace plimsoll {
namespace {

struct Avx2 {
  using I = __m256i;
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kPanelTokens = 6;  // sums in 16 bits and in f32 fill 12 of 16 registers
  static constexpr bool kMultipliesSignedWeights = true;

  static I load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const I*>(p)); }
  static I words(int value) { return _mm256_set1_epi32(value); }
  static I bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
  static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  static I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  static I bit_xor(I a, I b) { return _mm256_xor_si256(a, b); }
  template <int n>
  static I shift_left(I a) {
    return _mm256_slli_epi32(a, n);
  }
  template <int n>
  static I shift_right(I a) {
    return _mm256_srli_epi32(a, n);
  }
  template <int n>
  static I shift_right_signed(I a) {
    return _mm256_srai_epi32(a, n);
  }
  static I subtract_words(I a, I b) { return _mm256_sub_epi32(a, b); }
  // Two int8 of each row as int16 pairs, one pair a lane.
  static I bytes_to_words(const std::byte* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void prefetch(const std::byte* p, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) _mm_prefetch(p + kAhead + i, _MM_HINT_T0);
  }

  // Four doubles.
  using D = __m256d;
  static D load_doubles(const double* p) { return _mm256_loadu_pd(p); }
  static D widen(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static D add_doubles(D a, D b) { return _mm256_add_pd(a, b); }
  static void store_doubles(double* p, D a) { _mm256_storeu_pd(p, a); }
  static void store_narrowed(float* p, D a) { _mm_storeu_ps(p, _mm256_cvtpd_ps(a)); }

  static F zero() { return _mm256_setzero_ps(); }
  static F halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  template <DType dtype>
  static F floats(const std::byte* p) {
    if constexpr (dtype == DType::f32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    if constexpr (dtype == DType::f16) return halves(p);
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static F as_floats(I a) { return _mm256_castsi256_ps(a); }
  static F load_floats(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F spread(const std::byte* p) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
  }
  static F spread_float(float value) { return _mm256_set1_ps(value); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F multiply(F a, F b) { return _mm256_mul_ps(a, b); }
  static F divide(F a, F b) { return _mm256_div_ps(a, b); }
  static F multiply_add(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0F)); }
  static F absolute(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a); }
  static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  static I round(F a) { return _mm256_cvtps_epi32(a); }
  static F scale_by_power(F a, I n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(n, 23)));
  }
  // The larger of two floats without sign by their bits: a NaN is larger than all numbers.
  static F max_bits(F a, F b) {
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static float max_lane_bits(F a) {
    const I bits = _mm256_castps_si256(a);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1))));
  }

  // 32 floats times `inverse`, rounded to nearest even; sums of the two halves.
  static void quantise32(const F* x, float inverse, std::byte* q, std::int32_t* sums) {
    const F scale = _mm256_set1_ps(inverse);
    I n[4];
    for (int i = 0; i < 4; ++i) n[i] = round(multiply(x[i], scale));
    sums[0] = sum_lanes(_mm256_add_epi32(n[0], n[1]));
    sums[1] = sum_lanes(_mm256_add_epi32(n[2], n[3]));
    // The packs work within 128-bit halves; the permutation restores the order.
    const I packed =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    const I order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<I*>(q), _mm256_permutevar8x32_epi32(packed, order));
  }

  static void write_sums(float scale, const std::int32_t* sums, std::byte* s, std::byte* n) {
    const float scaled_sum = scale * static_cast<float>(sums[0] + sums[1]);
    const std::int16_t half_sums[2] = {static_cast<std::int16_t>(-sums[0]),
                                       static_cast<std::int16_t>(-sums[1])};
    __builtin_memcpy(s, &scaled_sum, 4);
    __builtin_memcpy(n, half_sums, 4);
  }

  // Adds one sub-block of kLanes rows times T tokens to `sum`:
  //   sum += (scale * d_t) * sum(q w) + min * s_t
  template <class Format, int T>
  [[gnu::always_inline]] static void add_sub_block(const Format& format, const std::byte* panel,
                                                   F* sum) {
    I products[T];
    dot<Format, T>(format, panel, products);
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      const F scale = multiply(format.scale, spread(panel + 32 * T + 4 * t));
      sum[t] = multiply_add(to_float(products[t]), scale, sum[t]);
      if constexpr (Format::kMin) {
        sum[t] = multiply_add(format.min, spread(panel + 36 * T + 4 * t), sum[t]);
      }
    });
  }

 private:
  static constexpr std::int64_t kAhead = 1024;  // bytes; covers the latency of memory at 20 GB/s

  // products[t] = sum over the sub-block of (byte - offset) * q, times the half scales if any.
  // Pairs of products are summed in 16 bits as far as they fit (kSums), then widened.
  template <class Format, int T>
  [[gnu::always_inline]] static void dot(const Format& format, const std::byte* panel,
                                         I* products) {
    if constexpr (Format::kSigned) {
      dot_signed<Format, T>(format, panel, products);
    } else {
      start<Format, T>(format, panel + 40 * T, products);
      unroll<8 / Format::kSums>([&](auto run) __attribute__((always_inline)) {
        constexpr int first = decltype(run)::value * Format::kSums;
        I sums[T];
        unroll<Format::kSums>([&](auto step) __attribute__((always_inline)) {
          constexpr int v = first + decltype(step)::value;
          const I weights = format.template vector<v>();
          unroll<T>([&](auto token) __attribute__((always_inline)) {
            constexpr int t = decltype(token)::value;
            const I pairs = _mm256_maddubs_epi16(weights, spread_word(panel + 32 * t + 4 * v));
            sums[t] = v == first ? pairs : _mm256_add_epi16(sums[t], pairs);
            pin(sums[t]);
          });
        });
        const I widen = widening<Format, first / 4>(format);
        unroll<T>([&](auto token) __attribute__((always_inline)) {
          constexpr int t = decltype(token)::value;
          products[t] = _mm256_add_epi32(products[t], _mm256_madd_epi16(sums[t], widen));
          pin(products[t]);
        });
      });
    }
  }

  // Holds a sum at its place: GCC 12 otherwise moves the additions behind all products of a
  // sub-block, which are more than there are registers.
  [[gnu::always_inline]] static void pin(I& sum) { asm volatile("" : "+x"(sum)); }

  static I spread_word(const std::byte* p) {
    int word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }

  static std::int32_t sum_lanes(I a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
  }

  // What the 16-bit pair sums are multiplied by when widened.
  template <class Format, int half>
  static I widening(const Format& format) {
    if constexpr (Format::kHalves) {
      const I scale = format.half_scales[half];
      return bit_or(bit_and(scale, words(0xffff)), shift_left<16>(scale));
    } else {
      return _mm256_set1_epi16(1);
    }
  }

  // products[t] = -offset * sum(q), from the negated half sums of the panel.
  template <class Format, int T>
  [[gnu::always_inline]] static void start(const Format& format, const std::byte* half_sums,
                                           I* products) {
    unroll<T>([&](auto token) __attribute__((always_inline)) {
      constexpr int t = decltype(token)::value;
      if constexpr (Format::kOffset == 0) {
        products[t] = _mm256_setzero_si256();
      } else if constexpr (Format::kHalves) {
        static_assert(Format::kOffset == 32);
        products[t] = shift_left<5>(_mm256_madd_epi16(format.pair, spread_word(half_sums + 4 * t)));
      } else {
        products[t] =
            _mm256_madd_epi16(_mm256_set1_epi16(Format::kOffset), spread_word(half_sums + 4 * t));
      }
    });
  }

  // Signed weights: |w| is the unsigned operand and the activation takes w's sign.
  template <class Format, int T>
  [[gnu::always_inline]] static void dot_signed(const Format& format, const std::byte* panel,
                                                I* products) {
    unroll<8>([&](auto vector) __attribute__((always_inline)) {
      constexpr int v = decltype(vector)::value;
      const I weights = format.template vector<v>();
      const I magnitudes = _mm256_abs_epi8(weights);
      unroll<T>([&](auto token) __attribute__((always_inline)) {
        constexpr int t = decltype(token)::value;
        const I q = _mm256_sign_epi8(spread_word(panel + 32 * t + 4 * v), weights);
        const I sums = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, q), _mm256_set1_epi16(1));
        products[t] = v == 0 ? sums : _mm256_add_epi32(products[t], sums);
        pin(products[t]);
      });
    });
  }
};

}  // namespace
}  // namespace plimsoll

#include "kernels/cpu/linear_panel.h"
#include "kernels/cpu/linear_tile.h"

namespace plimsoll {

const LinearKernel& avx2_linear_kernel() {
  static constexpr LinearKernel kKernel = {
      .panel_tokens = Avx2::kPanelTokens,
      .rms_of = rms_of<Avx2>,
      .quantise = quantise<Avx2>,
      .spread = spread<Avx2>,
      .tile = tile_for<Avx2>,
      .add_tiles = add_tiles<Avx2>,
      .finish_sums = finish_sums<Avx2>,
      .finish = finish<Avx2>,
  };
  return kKernel;
}

}  // namespace plimsoll
