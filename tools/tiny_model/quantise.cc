#include "tools/tiny_model/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shared/base/check.h"
#include "shared/base/half.h"

namespace plimsoll {
namespace {

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Stores the nearest half and gives what readers will see.
float store_half(std::byte* to, float value) {
  const std::uint16_t half = float_to_half(value);
  store(to, half);
  return half_to_float(half);
}

void or_bits(std::byte& target, int bits) { target |= static_cast<std::byte>(bits); }

int nearest(float value, float scale, int low, int high) {
  if (scale == 0) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(value / scale)), low, high);
}

float largest_magnitude(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

void f32_block(std::span<const float> values, std::byte* block) { store(block, values[0]); }

void f16_block(std::span<const float> values, std::byte* block) { store_half(block, values[0]); }

void bf16_block(std::span<const float> values, std::byte* block) {
  store(block, float_to_bfloat16(values[0]));
}

void put_nibble(std::byte* qs, int i, int q) { or_bits(qs[i % 16], q << (i / 16 * 4)); }

// Symmetric around 2^(bits - 1); the value of largest magnitude becomes the lowest code.
void symmetric_block(std::span<const float> values, int bits, std::byte* block) {
  const auto* most =
      std::ranges::max_element(values.data(), values.data() + values.size(),
                               [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const int zero = 1 << (bits - 1);
  const float d = store_half(block, *most / static_cast<float>(-zero));
  std::byte* qs = block + (bits == 4 ? 2 : 6);
  std::uint32_t qh = 0;
  for (int i = 0; i < 32; ++i) {
    const int q = nearest(values[static_cast<std::size_t>(i)], d, -zero, zero - 1) + zero;
    put_nibble(qs, i, q & 15);
    qh |= static_cast<std::uint32_t>(q >> 4) << i;
  }
  if (bits == 5) store(block + 2, qh);
}

// From the least value up, in equal steps.
void affine_block(std::span<const float> values, int bits, std::byte* block) {
  const auto [least, most] = std::ranges::minmax(values);
  const int top = (1 << bits) - 1;
  const float d = store_half(block, (most - least) / static_cast<float>(top));
  const float m = store_half(block + 2, least);
  std::byte* qs = block + (bits == 4 ? 4 : 8);
  std::uint32_t qh = 0;
  for (int i = 0; i < 32; ++i) {
    const int q = nearest(values[static_cast<std::size_t>(i)] - m, d, 0, top);
    put_nibble(qs, i, q & 15);
    qh |= static_cast<std::uint32_t>(q >> 4) << i;
  }
  if (bits == 5) store(block + 4, qh);
}

void q4_0_block(std::span<const float> values, std::byte* block) {
  symmetric_block(values, 4, block);
}
void q4_1_block(std::span<const float> values, std::byte* block) { affine_block(values, 4, block); }
void q5_0_block(std::span<const float> values, std::byte* block) {
  symmetric_block(values, 5, block);
}
void q5_1_block(std::span<const float> values, std::byte* block) { affine_block(values, 5, block); }

void q8_0_block(std::span<const float> values, std::byte* block) {
  const float d = store_half(block, largest_magnitude(values) / 127.0F);
  for (std::size_t i = 0; i < 32; ++i) {
    store(block + 2 + i, static_cast<std::int8_t>(nearest(values[i], d, -127, 127)));
  }
}

// Six-bit scale and minimum of sub-block s (of 8) into the 12 bytes of Q4_K and Q5_K.
void put_scale_min(std::byte* b, int s, int scale, int min) {
  if (s < 4) {
    or_bits(b[s], scale);
    or_bits(b[s + 4], min);
  } else {
    or_bits(b[s + 4], (scale & 15) | (min & 15) << 4);
    or_bits(b[s - 4], scale >> 4 << 6);
    or_bits(b[s], min >> 4 << 6);
  }
}

// Q4_K and Q5_K: d sc q - dmin mn, with a step and a minimum for each 32 values.
void k_affine_block(std::span<const float> values, int bits, std::byte* block) {
  const int top = (1 << bits) - 1;
  std::array<float, 8> steps = {};
  std::array<float, 8> minima = {};  // as stored: how far below zero the sub-block starts
  for (std::size_t s = 0; s < 8; ++s) {
    const auto [least, most] = std::ranges::minmax(values.subspan(32 * s, 32));
    minima[s] = std::max(0.0F, -least);
    steps[s] = std::max(0.0F, most + minima[s]) / static_cast<float>(top);
  }
  const float d = store_half(block, std::ranges::max(steps) / 63.0F);
  const float dmin = store_half(block + 2, std::ranges::max(minima) / 63.0F);
  std::byte* qh = block + 16;
  std::byte* qs = block + (bits == 4 ? 16 : 48);
  for (int s = 0; s < 8; ++s) {
    const auto index = static_cast<std::size_t>(s);
    const int scale = nearest(steps[index], d, 0, 63);
    const int min = nearest(minima[index], dmin, 0, 63);
    put_scale_min(block + 4, s, scale, min);
    for (int l = 0; l < 32; ++l) {
      const float above =
          values[index * 32 + static_cast<std::size_t>(l)] + dmin * static_cast<float>(min);
      const int q = nearest(above, d * static_cast<float>(scale), 0, top);
      or_bits(qs[s / 2 * 32 + l], (q & 15) << (s % 2 * 4));
      if (bits == 5) or_bits(qh[l], q >> 4 << s);
    }
  }
}

void q4_k_block(std::span<const float> values, std::byte* block) {
  k_affine_block(values, 4, block);
}
void q5_k_block(std::span<const float> values, std::byte* block) {
  k_affine_block(values, 5, block);
}

// d sc (q - 32), with a scale for each 16 values.
void q6_k_block(std::span<const float> values, std::byte* block) {
  std::array<float, 16> steps = {};
  for (std::size_t s = 0; s < 16; ++s) {
    steps[s] = largest_magnitude(values.subspan(16 * s, 16)) / 31.0F;
  }
  const float d = store_half(block + 208, std::ranges::max(steps) / 127.0F);
  for (int e = 0; e < 256; ++e) {
    const int h = e / 128;
    const int r = e % 128 / 32;
    const int l = e % 32;
    const int scale = nearest(steps[static_cast<std::size_t>(e / 16)], d, 0, 127);
    block[192 + e / 16] = static_cast<std::byte>(scale);
    const int q =
        nearest(values[static_cast<std::size_t>(e)], d * static_cast<float>(scale), -32, 31) + 32;
    or_bits(block[64 * h + 32 * (r % 2) + l], (q & 15) << (r / 2 * 4));
    or_bits(block[128 + 32 * h + l], q >> 4 << (2 * r));
  }
}

using BlockFunction = void (*)(std::span<const float> values, std::byte* block);

BlockFunction block_function(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return f32_block;
    case DType::f16:
      return f16_block;
    case DType::bf16:
      return bf16_block;
    case DType::q4_0:
      return q4_0_block;
    case DType::q4_1:
      return q4_1_block;
    case DType::q5_0:
      return q5_0_block;
    case DType::q5_1:
      return q5_1_block;
    case DType::q8_0:
      return q8_0_block;
    case DType::q4_k:
      return q4_k_block;
    case DType::q5_k:
      return q5_k_block;
    case DType::q6_k:
      return q6_k_block;
  }
  CHECK(false && "a type without a quantiser");
  return nullptr;
}

}  // namespace

std::vector<std::byte> quantise(DType dtype, std::span<const float> values) {
  const DTypeInfo& info = dtype_info(dtype);
  std::vector<std::byte> blocks(static_cast<std::size_t>(stored_bytes(dtype, std::ssize(values))));
  const BlockFunction function = block_function(dtype);
  const auto length = static_cast<std::size_t>(info.block_length);
  std::byte* block = blocks.data();
  for (std::size_t done = 0; done < values.size(); done += length) {
    function(values.subspan(done, length), block);
    block += info.block_bytes;
  }
  return blocks;
}

DType type_or_stand_in(DType type, std::int64_t cols) {
  if (cols % dtype_info(type).block_length == 0) return type;
  switch (type) {
    case DType::q4_k:
      return DType::q5_0;
    case DType::q5_k:
      return DType::q5_1;
    case DType::q6_k:
      return DType::q8_0;
    default:
      return type;
  }
}

}  // namespace plimsoll
