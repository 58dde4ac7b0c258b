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

// What of 32 columns goes into a panel, for one token of `width`.
struct Int8Block {
  std::int8_t q[kSubBlock] = {};
  float scale = 0;

  void write(int token, int width, std::byte* block) const {
    int sums[2] = {0, 0};
    for (std::int64_t k = 0; k < kSubBlock; ++k) sums[k / 16] += q[k];
    const float scaled_sum = scale * static_cast<float>(sums[0] + sums[1]);
    const std::int16_t half_sums[2] = {static_cast<std::int16_t>(-sums[0]),
                                       static_cast<std::int16_t>(-sums[1])};
    std::memcpy(block + kSubBlock * token, q, sizeof q);
    std::memcpy(block + 32 * width + 4 * token, &scale, 4);
    std::memcpy(block + 36 * width + 4 * token, &scaled_sum, 4);
    std::memcpy(block + 40 * width + 4 * token, half_sums, 4);
  }
};

float largest(const float* x) {
  float amax = 0;
  for (std::int64_t k = 0; k < kSubBlock; ++k) amax = std::max(amax, std::fabs(x[k]));
  return amax;
}

// A block that holds an infinity or a NaN gets a NaN as scale, so that its token's outputs show it.
Int8Block rounded(const float* x) {
  constexpr float kSmallestAmax = 1e-30F;  // below it the inverse would overflow
  Int8Block block;
  if (!std::all_of(x, x + kSubBlock, [](float value) { return std::isfinite(value); })) {
    block.scale = std::nanf("");
    return block;
  }
  const float amax = largest(x);
  if (amax <= kSmallestAmax) return block;
  block.scale = amax / 127.0F;
  const float inverse = 127.0F / amax;
  for (std::int64_t k = 0; k < kSubBlock; ++k) {
    block.q[k] = static_cast<std::int8_t>(std::nearbyint(x[k] * inverse));
  }
  return block;
}

void quantise(const NormedRow& row, int token, int width, const Int8Panel& panel) {
  float row_squares = 0;
  for (std::int64_t c = 0; c < row.cols; ++c) row_squares += normed(row, c) * normed(row, c);
  for (std::int64_t b = 0; b < row.cols / kSubBlock; ++b) {
    float x[kSubBlock];
    for (std::int64_t k = 0; k < kSubBlock; ++k) x[k] = normed(row, b * kSubBlock + k);
    const Int8Block first = rounded(x);
    Int8Block second;
    const float amax = largest(x);
    float squares = 0;
    for (const float value : x) squares += value * value;
    const float limit = panel.is_shared
                            ? kOutlierOfBlock * squares / static_cast<float>(kSubBlock)
                            : kOutlierOfRow * row_squares / static_cast<float>(row.cols);
    const bool more = amax * amax > limit;
    if (more) {
      for (std::int64_t k = 0; k < kSubBlock; ++k) {
        x[k] -= first.scale * static_cast<float>(first.q[k]);
      }
      second = rounded(x);
    }
    first.write(token, width, panel.first + b * kInt8BlockBytes * width);
    second.write(token, width, panel.second + b * kInt8BlockBytes * width);
    std::uint8_t* flags = panel.more + b * kPanelTokensMax;
    flags[token] = more ? 1 : 0;
    if (token == 0) std::fill(flags + width, flags + kPanelTokensMax, std::uint8_t{0});
  }
}

void spread(const NormedRow& row, int token, int width, std::byte* panel) {
  for (std::int64_t c = 0; c < row.cols; ++c) {
    const float x = normed(row, c);
    std::memcpy(panel + 4 * (c * width + token), &x, 4);
  }
}

// tile[t][row] += the row's sub-block times that of token t.
void add_sub_block(const UnpackedRow& row, const std::byte* block, int tokens, float* tile) {
  for (int t = 0; t < tokens; ++t, tile += kTileRows) {
    int halves[2] = {0, 0};
    for (int k = 0; k < kSubBlock; ++k) {
      halves[k / 16] += row.quants[k] * load<std::int8_t>(block + kSubBlock * t + k);
    }
    const float d = load<float>(block + 32 * tokens + 4 * t);
    if (row.scale[0] == row.scale[1]) {
      *tile += row.scale[0] * d * static_cast<float>(halves[0] + halves[1]);
    } else {
      *tile += d * (row.scale[0] * static_cast<float>(halves[0]) +
                    row.scale[1] * static_cast<float>(halves[1]));
    }
    *tile += row.min * load<float>(block + 36 * tokens + 4 * t);
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
      add_sub_block(row, panel, T, tile + r);
      if (cols.more[b] != 0) add_sub_block(row, panel + cols.second, T, tile + r);
    }
  }
}

template <DType dtype, int T>
void f32_tile(const std::byte* group, const std::byte* panel, const TileColumns& cols,
              float* tiles) {
  std::fill_n(tiles, ceil_div(cols.all, cols.segment) * T * kTileRows, 0.0F);
  for (std::int64_t c = 0, count = 0; c < cols.all; c += count) {
    count = std::min({kSubBlock, cols.all - c, cols.segment - c % cols.segment});
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
          weights[k] = unpack_float(dtype, group, cols.all, c + k, r);
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

void finish_sums(Epilogue epilogue, const double* sums, const TileTarget& target) {
  for (int t = 0; t < target.tokens; ++t, sums += kTileRows) {
    if (epilogue == Epilogue::partial) {
      std::copy(sums + target.first, sums + target.last, target.sums + t * target.stride);
      continue;
    }
    float* out = target.out + t * target.stride;
    for (int r = target.first; r < target.last; ++r, ++out) {
      *out = static_cast<float>(static_cast<double>(*out) + sums[r]);
    }
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
      .finish_sums = finish_sums,
      .finish = finish,
  };
  return kKernel;
}

}  // namespace plimsoll
