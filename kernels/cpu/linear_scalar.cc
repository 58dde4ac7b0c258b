// The portable kernels of `linear`: plain loops over unpacked rows; the reference of the others.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/packed_layout.h"

namespace plimsoll {
namespace {

constexpr int kPanelTokens = 4;

template <typename T>
T load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

float normed(const NormedRow& row, std::int64_t c) {
  if (row.weight == nullptr) return row.row[c];
  return row.row[c] * row.rms * row.weight[c];
}

float rms_of(const float* row, std::int64_t cols, float eps) {
  float sum = 0;
  for (std::int64_t c = 0; c < cols; ++c) sum += row[c] * row[c];
  return 1.0F / std::sqrt(sum / static_cast<float>(cols) + eps);
}

// A block that holds an infinity or a NaN gets a NaN as scale, so that its token's outputs show it.
void quantise(const NormedRow& row, int token, int width, std::byte* panel) {
  constexpr float kSmallestAmax = 1e-30F;  // below it the inverse would overflow
  for (std::int64_t c = 0; c < row.cols; c += kSubBlock, panel += kInt8BlockBytes * width) {
    float x[kSubBlock];
    float amax = 0;
    bool finite = true;
    for (std::int64_t k = 0; k < kSubBlock; ++k) {
      x[k] = normed(row, c + k);
      amax = std::max(amax, std::fabs(x[k]));
      finite = finite && std::isfinite(x[k]);
    }
    const bool some = finite && amax > kSmallestAmax;
    const float scale = some ? amax / 127.0F : finite ? 0.0F : std::nanf("");
    const float inverse = some ? 127.0F / amax : 0.0F;
    std::int8_t q[kSubBlock];
    int sums[2] = {0, 0};
    for (std::int64_t k = 0; k < kSubBlock; ++k) {
      q[k] = some ? static_cast<std::int8_t>(std::nearbyint(x[k] * inverse)) : std::int8_t{0};
      sums[k / 16] += q[k];
    }
    const float scaled_sum = scale * static_cast<float>(sums[0] + sums[1]);
    const std::int16_t half_sums[2] = {static_cast<std::int16_t>(-sums[0]),
                                       static_cast<std::int16_t>(-sums[1])};
    std::memcpy(panel + kSubBlock * token, q, sizeof q);
    std::memcpy(panel + 32 * width + 4 * token, &scale, 4);
    std::memcpy(panel + 36 * width + 4 * token, &scaled_sum, 4);
    std::memcpy(panel + 40 * width + 4 * token, half_sums, 4);
  }
}

void spread(const NormedRow& row, int token, int width, std::byte* panel) {
  for (std::int64_t c = 0; c < row.cols; ++c) {
    const float x = normed(row, c);
    std::memcpy(panel + 4 * (c * width + token), &x, 4);
  }
}

template <DType dtype, int T>
void int8_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
               float* tiles) {
  std::fill_n(tiles, ceil_div(cols.all, cols.segment) * T * kTileRows, 0.0F);
  for (std::int64_t b = 0; b < cols.all / kSubBlock; ++b, panel += kInt8BlockBytes * T) {
    float* tile = tiles + b * kSubBlock / cols.segment * T * kTileRows;
    for (int r = 0; r < kTileRows; ++r) {
      UnpackedRow row;
      unpack_row(dtype, group, b, r, row);
      for (int t = 0; t < T; ++t) {
        int halves[2] = {0, 0};
        for (int k = 0; k < kSubBlock; ++k) {
          halves[k / 16] += row.quants[k] * load<std::int8_t>(panel + kSubBlock * t + k);
        }
        const float d = load<float>(panel + 32 * T + 4 * t);
        float& sum = tile[t * kTileRows + r];
        if (row.scale[0] == row.scale[1]) {
          sum += row.scale[0] * d * static_cast<float>(halves[0] + halves[1]);
        } else {
          sum += d * (row.scale[0] * static_cast<float>(halves[0]) +
                      row.scale[1] * static_cast<float>(halves[1]));
        }
        sum += row.min * load<float>(panel + 36 * T + 4 * t);
      }
    }
  }
}

template <DType dtype, int T>
void f32_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
              float* tiles) {
  std::fill_n(tiles, ceil_div(cols.all, cols.segment) * T * kTileRows, 0.0F);
  for (std::int64_t c = 0; c < cols.all; c += kSubBlock) {
    const std::int64_t count = std::min(kSubBlock, cols.all - c);
    float* tile = tiles + c / cols.segment * T * kTileRows;
    for (int r = 0; r < kTileRows; ++r) {
      float weights[kSubBlock];
      if (is_quantised(dtype)) {
        UnpackedRow row;
        unpack_row(dtype, group, c / kSubBlock, r, row);
        for (int k = 0; k < kSubBlock; ++k) {
          weights[k] = row.scale[k / 16] * static_cast<float>(row.quants[k]) + row.min;
        }
      } else {
        for (std::int64_t k = 0; k < count; ++k) {
          weights[k] = unpack_float(dtype, group, c + k, r);
        }
      }
      for (int t = 0; t < T; ++t) {
        float sum = 0;
        for (std::int64_t k = 0; k < count; ++k) {
          sum += weights[k] * load<float>(panel + 4 * ((c + k) * T + t));
        }
        tile[t * kTileRows + r] += sum;
      }
    }
  }
}

template <DType dtype, int T>
TileFunction select(Activations activations, int tokens) {
  if constexpr (T == 0) {
    return nullptr;
  } else {
    if (tokens != T) return select<dtype, T - 1>(activations, tokens);
    if constexpr (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
      if (activations == Activations::int8) return &int8_tile<dtype, T>;
    }
    return &f32_tile<dtype, T>;
  }
}

TileFunction tile_for(DType dtype, Activations activations, int tokens) {
  switch (dtype) {
    case DType::f32:
      return select<DType::f32, kPanelTokens>(activations, tokens);
    case DType::f16:
      return select<DType::f16, kPanelTokens>(activations, tokens);
    case DType::bf16:
      return select<DType::bf16, kPanelTokens>(activations, tokens);
    case DType::q4_0:
      return select<DType::q4_0, kPanelTokens>(activations, tokens);
    case DType::q4_1:
      return select<DType::q4_1, kPanelTokens>(activations, tokens);
    case DType::q5_0:
      return select<DType::q5_0, kPanelTokens>(activations, tokens);
    case DType::q5_1:
      return select<DType::q5_1, kPanelTokens>(activations, tokens);
    case DType::q8_0:
      return select<DType::q8_0, kPanelTokens>(activations, tokens);
    case DType::q4_k:
      return select<DType::q4_k, kPanelTokens>(activations, tokens);
    case DType::q5_k:
      return select<DType::q5_k, kPanelTokens>(activations, tokens);
    case DType::q6_k:
      return select<DType::q6_k, kPanelTokens>(activations, tokens);
  }
  return nullptr;
}

void add_tiles(const float* tiles, int count, int tokens, double* sums) {
  for (int i = 0; i < count; ++i, tiles += tokens * kTileRows) {
    for (int at = 0; at < tokens * kTileRows; ++at) sums[at] += static_cast<double>(tiles[at]);
  }
}

// The gate's factor of up.
float gate_of(Epilogue epilogue, float y) {
  if (epilogue == Epilogue::silu_mul) return y / (1.0F + std::exp(-y));
  return y / (1.0F + std::exp(-kGeluTwice * (y + kGeluCubic * y * y * y)));
}

void finish(Epilogue epilogue, const float* tile, const float* up, const TileTarget& target) {
  for (int t = 0; t < target.tokens; ++t) {
    float* out = target.out + t * target.stride;
    for (int r = target.first; r < target.last; ++r) {
      const float y = tile[t * kTileRows + r];
      float& element = out[r - target.first];
      if (epilogue == Epilogue::store) {
        element = y;
      } else {
        element = gate_of(epilogue, y) * up[t * kTileRows + r];
      }
    }
  }
}

}  // namespace

const LinearKernel& scalar_linear_kernel() {
  static constexpr LinearKernel kKernel = {
      .panel_tokens = kPanelTokens,
      .rms_of = rms_of,
      .quantise = quantise,
      .spread = spread,
      .tile = tile_for,
      .add_tiles = add_tiles,
      .finish = finish,
  };
  return kKernel;
}

}  // namespace plimsoll
