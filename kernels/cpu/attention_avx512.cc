// Attention with AVX-512: 16 lanes; tiles of up to 12 rows x 32 columns stay in registers, so that
// a page is converted from f16 once for 12 rows.
#include "kernels/cpu/attention_kernel.h"

// GCC 12 takes the deliberately undefined registers of its own AVX-512 header for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace plimsoll {
namespace {

constexpr std::int64_t kKeys = kKvBlockTokens;
constexpr int kRowsMax = 12;
constexpr int kRoundDown = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// The first n lanes.
inline __mmask16 lanes(std::int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(0xFFFF)
                 : static_cast<__mmask16>((1U << static_cast<unsigned>(n > 0 ? n : 0)) - 1U);
}

// 2^x to about an ulp; 0 below the denormals; NaN stays NaN. exp2(0) is exactly 1.
inline __m512 exp2_lanes(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0F), x);
  const __m512 n = _mm512_roundscale_ps(x, kRoundDown);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 y = _mm512_set1_ps(1.535336188319500e-4F);
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.339887440266574e-3F));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.618437357674640e-3F));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.550332471162809e-2F));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.402264791363012e-1F));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931472028550421e-1F));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(y, n);
}

// 16 elements as floats; those outside of the mask are neither read nor anything but 0.
template <bool kWhole>
inline __m512 load(const std::uint16_t* p, __mmask16 mask) {
  if constexpr (kWhole) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}
template <bool kWhole>
inline __m512 load(const std::int8_t* p, __mmask16 mask) {
  const __m128i numbers =
      kWhole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)) : _mm_maskz_loadu_epi8(mask, p);
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(numbers));
}

// c[r, 0..32) = start + Σ_k a[r, k] · b[k, 0..32), k in order; start is 0, or c[r] · decay[r].
// a is [R, depth] f32, b [depth, 32 of ldb] f16 or int8; columns past `columns` are neither read
// nor written.
template <class T>
struct Product {
  const float* a;
  std::int64_t lda;
  const T* b;
  std::int64_t ldb;
  std::int64_t depth;
  float* c;
  std::int64_t ldc;
  const float* decay;
  std::int64_t columns;
};

template <int R, bool kWhole, class T>
void multiply(const Product<T>& p) {
  const __mmask16 m0 = lanes(p.columns);
  const __mmask16 m1 = lanes(p.columns - 16);
  __m512 acc[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    if (p.decay != nullptr) {
      const __m512 decay = _mm512_set1_ps(p.decay[r]);
      const float* c = p.c + r * p.ldc;
      acc[r][0] = _mm512_mul_ps(decay, _mm512_maskz_loadu_ps(m0, c));
      acc[r][1] = _mm512_mul_ps(decay, _mm512_maskz_loadu_ps(m1, c + 16));
    } else {
      acc[r][0] = _mm512_setzero_ps();
      acc[r][1] = _mm512_setzero_ps();
    }
  }
  const T* b = p.b;
  for (std::int64_t k = 0; k < p.depth; ++k, b += p.ldb) {
    const __m512 b0 = load<kWhole>(b, m0);
    const __m512 b1 = load<kWhole>(b + 16, m1);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512 a = _mm512_set1_ps(p.a[r * p.lda + k]);
      acc[r][0] = _mm512_fmadd_ps(a, b0, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(a, b1, acc[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    float* c = p.c + r * p.ldc;
    _mm512_mask_storeu_ps(c, m0, acc[r][0]);
    _mm512_mask_storeu_ps(c + 16, m1, acc[r][1]);
  }
}

template <bool kWhole, class T>
void multiply_rows(int rows, const Product<T>& p) {
  using Multiply = void (*)(const Product<T>&);
  static constexpr Multiply kByRows[kRowsMax + 1] = {
      nullptr,
      multiply<1, kWhole, T>,
      multiply<2, kWhole, T>,
      multiply<3, kWhole, T>,
      multiply<4, kWhole, T>,
      multiply<5, kWhole, T>,
      multiply<6, kWhole, T>,
      multiply<7, kWhole, T>,
      multiply<8, kWhole, T>,
      multiply<9, kWhole, T>,
      multiply<10, kWhole, T>,
      multiply<11, kWhole, T>,
      multiply<12, kWhole, T>,
  };
  kByRows[rows](p);
}

// Scores of the row times its keys' scales.
void scale_scores(const AttentionTile& tile, RowRange rows, const float* scales) {
  const __m512 f0 = _mm512_loadu_ps(scales);
  const __m512 f1 = _mm512_loadu_ps(scales + 16);
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    float* s = tile.scores + r * kKeys;
    _mm512_storeu_ps(s, _mm512_mul_ps(f0, _mm512_loadu_ps(s)));
    _mm512_storeu_ps(s + 16, _mm512_mul_ps(f1, _mm512_loadu_ps(s + 16)));
  }
}

// Scores of the rows become weights 2^(score - max); max, decay and lanes follow. Where the page
// has scales, scores are multiplied with those of keys before, weights with those of values after.
void softmax_step(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys) {
  if (page.key_scales != nullptr) scale_scores(tile, rows, page.key_scales);
  const __mmask16 m0 = _kandn_mask16(lanes(keys.begin), lanes(keys.end));
  const __mmask16 m1 = _kandn_mask16(lanes(keys.begin - 16), lanes(keys.end - 16));
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    const float* s = tile.scores + r * kKeys;
    const __m512 s0 = _mm512_mask_loadu_ps(none, m0, s);
    const __m512 s1 = _mm512_mask_loadu_ps(none, m1, s + 16);
    tile.decay[r] = _mm512_reduce_max_ps(_mm512_max_ps(s0, s1));
  }
  for (std::int64_t i = 0; i < rows.count; i += 16) {
    const __mmask16 mask = lanes(rows.count - i);
    float* max = tile.max + rows.begin + i;
    float* decay = tile.decay + rows.begin + i;
    const __m512 old_max = _mm512_maskz_loadu_ps(mask, max);
    const __m512 new_max = _mm512_max_ps(old_max, _mm512_maskz_loadu_ps(mask, decay));
    _mm512_mask_storeu_ps(decay, mask, exp2_lanes(_mm512_sub_ps(old_max, new_max)));
    _mm512_mask_storeu_ps(max, mask, new_max);
  }
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    float* s = tile.scores + r * kKeys;
    const __m512 max = _mm512_set1_ps(tile.max[r]);
    const __m512 e0 = exp2_lanes(_mm512_sub_ps(_mm512_loadu_ps(s), max));
    const __m512 e1 = exp2_lanes(_mm512_sub_ps(_mm512_loadu_ps(s + 16), max));
    const __m512 p0 = _mm512_maskz_mov_ps(m0, e0);
    const __m512 p1 = _mm512_maskz_mov_ps(m1, e1);
    _mm512_storeu_ps(s, p0);
    _mm512_storeu_ps(s + 16, p1);
    float* sums = tile.lanes + r * kSumLanes;
    const __m512 decay = _mm512_set1_ps(tile.decay[r]);
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), decay, _mm512_add_ps(p0, p1)));
  }
  if (page.value_scales != nullptr) scale_scores(tile, rows, page.value_scales);
}

template <class T>
void attend(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys) {
  const T* key_page = static_cast<const T*>(page.keys);
  const T* value_page = static_cast<const T*>(page.values);
  const std::int64_t dim = tile.head_dim;
  const std::int64_t end = rows.begin + rows.count;
  const std::int64_t passes = (rows.count + kRowsMax - 1) / kRowsMax;
  const std::int64_t step = (rows.count + passes - 1) / passes;
  for (std::int64_t r = rows.begin; r < end; r += step) {
    const int count = static_cast<int>(end - r < step ? end - r : step);
    multiply_rows<true, T>(count, {tile.query + r * dim, dim, key_page, kKeys, dim,
                                   tile.scores + r * kKeys, kKeys, nullptr, kKeys});
  }
  softmax_step(tile, rows, page, keys);
  for (std::int64_t r = rows.begin; r < end; r += step) {
    const int count = static_cast<int>(end - r < step ? end - r : step);
    for (std::int64_t column = 0; column < dim; column += 32) {
      const Product<T> p = {tile.scores + r * kKeys + keys.begin,
                            kKeys,
                            value_page + keys.begin * dim + column,
                            dim,
                            keys.end - keys.begin,
                            tile.out + r * dim + column,
                            dim,
                            tile.decay + r,
                            dim - column};
      if (p.columns >= 32) {
        multiply_rows<true>(count, p);
      } else {
        multiply_rows<false>(count, p);
      }
    }
  }
}

void sum_lanes(const AttentionTile& tile, RowRange rows, float* sum) {
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    sum[r] = _mm512_reduce_add_ps(_mm512_loadu_ps(tile.lanes + r * kSumLanes));
  }
}

void fold(const AttentionPartial& into, const AttentionPartial& from, RowRange rows,
          std::int64_t head_dim) {
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    const float max = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
    const __m512 a = exp2_lanes(_mm512_set1_ps(into.max[r] - max));
    const __m512 b = exp2_lanes(_mm512_set1_ps(from.max[r] - max));
    into.max[r] = max;
    into.sum[r] =
        __builtin_fmaf(from.sum[r], _mm512_cvtss_f32(b), into.sum[r] * _mm512_cvtss_f32(a));
    float* x = into.out + r * head_dim;
    const float* y = from.out + r * head_dim;
    for (std::int64_t d = 0; d < head_dim; d += 16) {
      const __mmask16 mask = lanes(head_dim - d);
      const __m512 earlier = _mm512_mul_ps(a, _mm512_maskz_loadu_ps(mask, x + d));
      const __m512 sum = _mm512_fmadd_ps(b, _mm512_maskz_loadu_ps(mask, y + d), earlier);
      _mm512_mask_storeu_ps(x + d, mask, sum);
    }
  }
}

void scale(const float* in, float factor, float* out, std::int64_t count) {
  const __m512 f = _mm512_set1_ps(factor);
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = lanes(count - i);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, in + i), f));
  }
}

void rotate(float* head, const float* cos, const float* sin, std::int64_t half_dim,
            bool interleaved) {
  if (interleaved) {
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (std::int64_t j = 0; j < half_dim; j += 8) {
      const __mmask16 mask = lanes(2 * (half_dim - j));
      const __mmask16 half = lanes(half_dim - j < 8 ? half_dim - j : 8);
      const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(half, cos + j));
      const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(half, sin + j));
      const __m512 x = _mm512_maskz_loadu_ps(mask, head + 2 * j);
      const __m512 swapped = _mm512_permute_ps(x, 0xB1);
      const __m512 y = _mm512_fmaddsub_ps(x, c, _mm512_mul_ps(swapped, s));
      _mm512_mask_storeu_ps(head + 2 * j, mask, y);
    }
    return;
  }
  for (std::int64_t j = 0; j < half_dim; j += 16) {
    const __mmask16 mask = lanes(half_dim - j);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos + j);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sin + j);
    const __m512 x = _mm512_maskz_loadu_ps(mask, head + j);
    const __m512 y = _mm512_maskz_loadu_ps(mask, head + half_dim + j);
    _mm512_mask_storeu_ps(head + j, mask, _mm512_fmsub_ps(x, c, _mm512_mul_ps(y, s)));
    _mm512_mask_storeu_ps(head + half_dim + j, mask, _mm512_fmadd_ps(y, c, _mm512_mul_ps(x, s)));
  }
}

void store_value(const float* value, std::uint16_t* row, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; d += 16) {
    const __mmask16 mask = lanes(head_dim - d);
    const __m512 v = _mm512_maskz_loadu_ps(mask, value + d);
    _mm256_mask_storeu_epi16(row + d, mask, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
}

void store_key(const float* key, std::uint16_t* column, std::int64_t head_dim) {
  alignas(32) std::uint16_t rounded[16];
  for (std::int64_t d = 0; d < head_dim; d += 16) {
    const std::int64_t count = head_dim - d < 16 ? head_dim - d : 16;
    store_value(key + d, rounded, count);
    for (std::int64_t i = 0; i < count; ++i) column[(d + i) * kKeys] = rounded[i];
  }
}

}  // namespace

const AttentionKernel kAttentionAvx512 = {
    rotate,    store_key, store_value, scale, attend<std::uint16_t>, attend<std::int8_t>,
    sum_lanes, fold};

}  // namespace plimsoll
