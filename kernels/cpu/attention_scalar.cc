// Attention for any x86-64: one lane, no FMA. The reference that the other paths are read against.
#include <bit>

#include "kernels/cpu/attention_kernel.h"
#include "shared/base/half.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kKeys = kKvBlockTokens;
constexpr std::int64_t kHeadDimMax = 256;

// 2^x to about an ulp; 0 below the denormals; NaN stays NaN. exp2(0) is exactly 1.
float exp2_one(float x) {
  if (x < -126.0F) return 0.0F;
  const float n = (x + 0x1.8p23F) - 0x1.8p23F;  // rounded: beyond 2^23 a float has no fraction
  const float f = x - n;
  float y = 1.535336188319500e-4F;
  y = y * f + 1.339887440266574e-3F;
  y = y * f + 9.618437357674640e-3F;
  y = y * f + 5.550332471162809e-2F;
  y = y * f + 2.402264791363012e-1F;
  y = y * f + 6.931472028550421e-1F;
  y = y * f + 1.0F;
  if (n != n) return n;
  const auto exponent = static_cast<std::uint32_t>(127 + static_cast<int>(n));
  return y * std::bit_cast<float>(exponent << 23U);
}

float as_float(std::uint16_t half) { return half_to_float(half); }
float as_float(std::int8_t number) { return number; }

// scores[row, t] = query[row] · key t
template <class T>
void score(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys) {
  const T* key_page = static_cast<const T*>(page.keys);
  for (std::int64_t i = 0; i < rows.count * kKeys; ++i) tile.scores[rows.begin * kKeys + i] = 0;
  float key[kKeys];
  for (std::int64_t d = 0; d < tile.head_dim; ++d) {
    for (std::int64_t t = keys.begin; t < keys.end; ++t) key[t] = as_float(key_page[d * kKeys + t]);
    for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
      const float query = tile.query[row * tile.head_dim + d];
      float* scores = tile.scores + row * kKeys;
      for (std::int64_t t = keys.begin; t < keys.end; ++t) scores[t] += query * key[t];
    }
  }
  if (page.key_scales == nullptr) return;
  for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    float* scores = tile.scores + row * kKeys;
    for (std::int64_t t = keys.begin; t < keys.end; ++t) scores[t] *= page.key_scales[t];
  }
}

// Scores of the row become weights 2^(score - max); max, sum and output follow.
void softmax_row(const AttentionTile& tile, std::int64_t row, KeyRange keys) {
  float* scores = tile.scores + row * kKeys;
  float max = tile.max[row];
  for (std::int64_t t = keys.begin; t < keys.end; ++t) max = scores[t] > max ? scores[t] : max;
  const float decay = exp2_one(tile.max[row] - max);
  tile.max[row] = max;
  float sum = tile.lanes[row * kSumLanes] * decay;
  for (std::int64_t t = keys.begin; t < keys.end; ++t) {
    scores[t] = exp2_one(scores[t] - max);
    sum += scores[t];
  }
  tile.lanes[row * kSumLanes] = sum;
  float* out = tile.out + row * tile.head_dim;
  for (std::int64_t d = 0; d < tile.head_dim; ++d) out[d] *= decay;
}

template <class T>
void attend(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys) {
  const std::int64_t end = rows.begin + rows.count;
  score<T>(tile, rows, page, keys);
  for (std::int64_t row = rows.begin; row < end; ++row) softmax_row(tile, row, keys);
  float value[kHeadDimMax];
  for (std::int64_t t = keys.begin; t < keys.end; ++t) {
    const T* stored = static_cast<const T*>(page.values) + t * tile.head_dim;
    for (std::int64_t d = 0; d < tile.head_dim; ++d) value[d] = as_float(stored[d]);
    const float scale = page.value_scales == nullptr ? 1.0F : page.value_scales[t];
    for (std::int64_t row = rows.begin; row < end; ++row) {
      const float weight = tile.scores[row * kKeys + t] * scale;
      float* out = tile.out + row * tile.head_dim;
      for (std::int64_t d = 0; d < tile.head_dim; ++d) out[d] += weight * value[d];
    }
  }
}

void sum_lanes(const AttentionTile& tile, RowRange rows, float* sum) {
  for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    sum[row] = tile.lanes[row * kSumLanes];
  }
}

void fold(const AttentionPartial& into, const AttentionPartial& from, RowRange rows,
          std::int64_t head_dim) {
  for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    const float max = into.max[row] > from.max[row] ? into.max[row] : from.max[row];
    const float a = exp2_one(into.max[row] - max);
    const float b = exp2_one(from.max[row] - max);
    into.max[row] = max;
    into.sum[row] = into.sum[row] * a + from.sum[row] * b;
    float* x = into.out + row * head_dim;
    const float* y = from.out + row * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) x[d] = x[d] * a + y[d] * b;
  }
}

void scale(const float* in, float factor, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = in[i] * factor;
}

void rotate(float* head, const float* cos, const float* sin, std::int64_t half_dim,
            bool interleaved) {
  const std::int64_t step = interleaved ? 2 : 1;
  const std::int64_t partner = interleaved ? 1 : half_dim;
  for (std::int64_t j = 0; j < half_dim; ++j) {
    const float x = head[j * step];
    const float y = head[j * step + partner];
    head[j * step] = x * cos[j] - y * sin[j];
    head[j * step + partner] = y * cos[j] + x * sin[j];
  }
}

void store_key(const float* key, std::uint16_t* column, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; ++d) column[d * kKeys] = float_to_half(key[d]);
}

void store_value(const float* value, std::uint16_t* row, std::int64_t head_dim) {
  for (std::int64_t d = 0; d < head_dim; ++d) row[d] = float_to_half(value[d]);
}

}  // namespace

const AttentionKernel kAttentionScalar = {
    rotate,    store_key, store_value, scale, attend<std::uint16_t>, attend<std::int8_t>,
    sum_lanes, fold};

}  // namespace plimsoll
