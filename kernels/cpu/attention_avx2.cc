// Attention with AVX2, FMA and F16C: 8 lanes; tiles of up to 6 rows x 16 columns stay in registers.
#include <immintrin.h>

#include "kernels/cpu/attention_kernel.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kKeys = kKvBlockTokens;
constexpr int kRowsMax = 6;
constexpr std::int64_t kColumns = 16;

// All bits of the first n lanes.
inline __m256i lanes(std::int64_t n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int count = n > 8 ? 8 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index);
}

// All bits of those of the eight lanes from key `first` on that are in the range.
inline __m256 key_lanes(KeyRange keys, std::int64_t first) {
  return _mm256_castsi256_ps(
      _mm256_andnot_si256(lanes(keys.begin - first), lanes(keys.end - first)));
}

inline float max_of(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

inline float sum_of(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

inline __m256 load(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m256 load(const std::int8_t* p) {
  const __m128i numbers = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(numbers));
}

// 2^x to about an ulp; 0 below 2^-126; NaN stays NaN. exp2(0) is exactly 1.
inline __m256 exp2_lanes(__m256 x) {
  const __m256 least = _mm256_set1_ps(-127.0F);
  x = _mm256_max_ps(least, x);
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, n);
  __m256 y = _mm256_set1_ps(1.535336188319500e-4F);
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.339887440266574e-3F));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.618437357674640e-3F));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.550332471162809e-2F));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.402264791363012e-1F));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.931472028550421e-1F));
  y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0F));
  // The power of two, from its exponent bits; 2^-127 comes out as 0.
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

// c[r, 0..16) = start + Σ_k a[r, k] · b[k, 0..16), k in order; start is 0, or c[r] · decay[r].
// a is [R, depth] f32, b [depth, 16 of ldb] f16 or int8. With one vector, columns 8 … 15 are left
// alone.
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
};

template <int R, int kVectors, class T>
void multiply(const Product<T>& p) {
  __m256 acc[R][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = p.decay == nullptr ? _mm256_setzero_ps()
                                     : _mm256_mul_ps(_mm256_set1_ps(p.decay[r]),
                                                     _mm256_loadu_ps(p.c + r * p.ldc + v * 8));
    }
  }
  const T* b = p.b;
  for (std::int64_t k = 0; k < p.depth; ++k, b += p.ldb) {
    __m256 values[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) values[v] = load(b + v * 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 a = _mm256_broadcast_ss(p.a + r * p.lda + k);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm256_fmadd_ps(a, values[v], acc[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(p.c + r * p.ldc + v * 8, acc[r][v]);
  }
}

template <int kVectors, class T>
void multiply_rows(std::int64_t rows, const Product<T>& p) {
  using Multiply = void (*)(const Product<T>&);
  static constexpr Multiply kByRows[kRowsMax + 1] = {
      nullptr,
      multiply<1, kVectors, T>,
      multiply<2, kVectors, T>,
      multiply<3, kVectors, T>,
      multiply<4, kVectors, T>,
      multiply<5, kVectors, T>,
      multiply<6, kVectors, T>,
  };
  kByRows[rows](p);
}

// Scores of the row become weights 2^(score - max); max, decay and lanes follow. Where the page has
// scales, scores are multiplied with those of keys before, weights with those of values after.
void softmax_row(const AttentionTile& tile, std::int64_t row, const KvPage& page, KeyRange keys) {
  float* s = tile.scores + row * kKeys;
  const __m256 none = _mm256_set1_ps(-__builtin_inff());
  __m256 score[4];
  __m256 most = none;
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    score[v] = _mm256_loadu_ps(s + v * 8);
    if (page.key_scales != nullptr) {
      score[v] = _mm256_mul_ps(score[v], _mm256_loadu_ps(page.key_scales + v * 8));
    }
    score[v] = _mm256_blendv_ps(none, score[v], key_lanes(keys, v * 8));
    most = _mm256_max_ps(most, score[v]);
  }
  const float old_max = tile.max[row];
  const float block_max = max_of(most);
  const float max = old_max > block_max ? old_max : block_max;
  const __m256 decay = exp2_lanes(_mm256_set1_ps(old_max - max));
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    __m256 weight = _mm256_and_ps(exp2_lanes(_mm256_sub_ps(score[v], _mm256_set1_ps(max))),
                                  key_lanes(keys, v * 8));
    sum = _mm256_add_ps(sum, weight);
    if (page.value_scales != nullptr) {
      weight = _mm256_mul_ps(weight, _mm256_loadu_ps(page.value_scales + v * 8));
    }
    _mm256_storeu_ps(s + v * 8, weight);
  }
  float* sums = tile.lanes + row * kSumLanes;
  _mm256_storeu_ps(sums, _mm256_fmadd_ps(_mm256_loadu_ps(sums), decay, sum));
  tile.max[row] = max;
  tile.decay[row] = _mm256_cvtss_f32(decay);
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
    const std::int64_t count = end - r < step ? end - r : step;
    for (std::int64_t t = 0; t < kKeys; t += kColumns) {
      multiply_rows<2, T>(count, {tile.query + r * dim, dim, key_page + t, kKeys, dim,
                                  tile.scores + r * kKeys + t, kKeys, nullptr});
    }
  }
  for (std::int64_t r = rows.begin; r < end; ++r) softmax_row(tile, r, page, keys);
  for (std::int64_t r = rows.begin; r < end; r += step) {
    const std::int64_t count = end - r < step ? end - r : step;
    for (std::int64_t column = 0; column < dim; column += kColumns) {
      const Product<T> p = {tile.scores + r * kKeys + keys.begin,
                            kKeys,
                            value_page + keys.begin * dim + column,
                            dim,
                            keys.end - keys.begin,
                            tile.out + r * dim + column,
                            dim,
                            tile.decay + r};
      if (dim - column >= kColumns) {
        multiply_rows<2>(count, p);
      } else {
        multiply_rows<1>(count, p);
      }
    }
  }
}

void sum_lanes(const AttentionTile& tile, RowRange rows, float* sum) {
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    sum[r] = sum_of(_mm256_loadu_ps(tile.lanes + r * kSumLanes));
  }
}

void fold(const AttentionPartial& into, const AttentionPartial& from, RowRange rows,
          std::int64_t head_dim) {
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    const float max = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
    const __m256 a = exp2_lanes(_mm256_set1_ps(into.max[r] - max));
    const __m256 b = exp2_lanes(_mm256_set1_ps(from.max[r] - max));
    into.max[r] = max;
    into.sum[r] =
        __builtin_fmaf(from.sum[r], _mm256_cvtss_f32(b), into.sum[r] * _mm256_cvtss_f32(a));
    float* x = into.out + r * head_dim;
    const float* y = from.out + r * head_dim;
    for (std::int64_t d = 0; d < head_dim; d += 8) {
      const __m256 earlier = _mm256_mul_ps(a, _mm256_loadu_ps(x + d));
      _mm256_storeu_ps(x + d, _mm256_fmadd_ps(b, _mm256_loadu_ps(y + d), earlier));
    }
  }
}

void scale(const float* in, float factor, float* out, std::int64_t count) {
  const __m256 f = _mm256_set1_ps(factor);
  for (std::int64_t i = 0; i < count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(in + i), f));
  }
}

void rotate_interleaved(float* head, const float* cos, const float* sin, std::int64_t half_dim) {
  for (std::int64_t j = 0; j < half_dim; ++j) {
    const float x = head[2 * j];
    const float y = head[2 * j + 1];
    head[2 * j] = __builtin_fmaf(x, cos[j], -(y * sin[j]));
    head[2 * j + 1] = __builtin_fmaf(y, cos[j], x * sin[j]);
  }
}

void rotate(float* head, const float* cos, const float* sin, std::int64_t half_dim,
            bool interleaved) {
  if (interleaved) {
    rotate_interleaved(head, cos, sin, half_dim);
    return;
  }
  float* other = head + half_dim;
  for (std::int64_t j = 0; j < half_dim; j += 8) {
    const __m256i mask = lanes(half_dim - j);
    const __m256 c = _mm256_maskload_ps(cos + j, mask);
    const __m256 s = _mm256_maskload_ps(sin + j, mask);
    const __m256 x = _mm256_maskload_ps(head + j, mask);
    const __m256 y = _mm256_maskload_ps(other + j, mask);
    _mm256_maskstore_ps(head + j, mask, _mm256_fmsub_ps(x, c, _mm256_mul_ps(y, s)));
    _mm256_maskstore_ps(other + j, mask, _mm256_fmadd_ps(y, c, _mm256_mul_ps(x, s)));
  }
}

void store_value(const float* value, std::uint16_t* row, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; d += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(value + d), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + d), half);
  }
}

void store_key(const float* key, std::uint16_t* column, std::int64_t head_dim) {
  std::uint16_t rounded[8];
  for (std::int64_t d = 0; d < head_dim; d += 8) {
    store_value(key + d, rounded, 8);
    for (std::int64_t i = 0; i < 8; ++i) column[(d + i) * kKeys] = rounded[i];
  }
}

}  // namespace

const AttentionKernel kAttentionAvx2 = {
    rotate,    store_key, store_value, scale, attend<std::uint16_t>, attend<std::int8_t>,
    sum_lanes, fold};

}  // namespace plimsoll
