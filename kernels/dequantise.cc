#include "kernels/dequantise.h"

#include <cstring>

#include "shared/base/check.h"
#include "shared/base/half.h"

namespace plimsoll {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float load_half(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }

int byte_at(const std::byte* from, int index) { return std::to_integer<int>(from[index]); }

void f32_block(const std::byte* block, float* out) { *out = load<float>(block); }

void f16_block(const std::byte* block, float* out) { *out = load_half(block); }

void bf16_block(const std::byte* block, float* out) {
  *out = bfloat16_to_float(load<std::uint16_t>(block));
}

// Four or five bits of element i of a 32-element block: elements 0-15 are the low nibbles of qs,
// 16-31 the high ones; the fifth bit is bit i of qh.
int nibble(const std::byte* qs, int i) { return byte_at(qs, i % 16) >> (i / 16 * 4) & 15; }

int five_bits(const std::byte* qs, std::uint32_t qh, int i) {
  return nibble(qs, i) | static_cast<int>(qh >> i & 1U) << 4;
}

// d · qs[16]: d (q - 8)
void q4_0_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

// d · m · qs[16]: d q + m
void q4_1_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

// d · qh u32 · qs[16]: d (q - 16)
void q5_0_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  const auto qh = load<std::uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(block + 6, qh, i) - 16);
}

// d · m · qh u32 · qs[16]: d q + m
void q5_1_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const auto qh = load<std::uint32_t>(block + 4);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(block + 8, qh, i)) + m;
}

// d · int8[32]: d q
void q8_0_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(load<std::int8_t>(block + 2 + i));
}

struct ScaleMin {
  int scale;
  int min;
};

// Six-bit scale and minimum of 32-element sub-block s (of 8) out of the 12 bytes of Q4_K and Q5_K.
ScaleMin scale_min(const std::byte* b, int s) {
  if (s < 4) return {byte_at(b, s) & 63, byte_at(b, s + 4) & 63};
  return {(byte_at(b, s + 4) & 15) | byte_at(b, s - 4) >> 6 << 4,
          byte_at(b, s + 4) >> 4 | byte_at(b, s) >> 6 << 4};
}

// d · dmin · scales[12] · qs[128]: d sc q - dmin mn
void q4_k_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::byte* qs = block + 16;
  for (int s = 0; s < 8; ++s) {
    const auto [scale, min] = scale_min(block + 4, s);
    const float factor = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int q = byte_at(qs, s / 2 * 32 + l) >> (s % 2 * 4) & 15;
      out[s * 32 + l] = factor * static_cast<float>(q) - offset;
    }
  }
}

// d · dmin · scales[12] · qh[32] · qs[128]: d sc q - dmin mn; the fifth bit is bit s of qh[l]
void q5_k_block(const std::byte* block, float* out) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::byte* qh = block + 16;
  const std::byte* qs = block + 48;
  for (int s = 0; s < 8; ++s) {
    const auto [scale, min] = scale_min(block + 4, s);
    const float factor = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int low = byte_at(qs, s / 2 * 32 + l) >> (s % 2 * 4) & 15;
      const int q = low | (byte_at(qh, l) >> s & 1) << 4;
      out[s * 32 + l] = factor * static_cast<float>(q) - offset;
    }
  }
}

// ql[128] · qh[64] · int8 scales[16] · d: d sc (q - 32). Two halves of four runs of 32 elements.
void q6_k_block(const std::byte* block, float* out) {
  const std::byte* qh = block + 128;
  const std::byte* scales = block + 192;
  const float d = load_half(block + 208);
  for (int h = 0; h < 2; ++h) {
    for (int r = 0; r < 4; ++r) {
      for (int l = 0; l < 32; ++l) {
        const int low = byte_at(block, 64 * h + 32 * (r % 2) + l) >> (r / 2 * 4) & 15;
        const int high = byte_at(qh, 32 * h + l) >> (2 * r) & 3;
        const auto scale = load<std::int8_t>(scales + 8 * h + 2 * r + l / 16);
        out[128 * h + 32 * r + l] =
            d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
      }
    }
  }
}

using BlockFunction = void (*)(const std::byte* block, float* out);

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
  CHECK(false && "a type without a dequantiser");
  return nullptr;
}

}  // namespace

void dequantise(DType dtype, const std::byte* blocks, std::int64_t elements, float* out) {
  const DTypeInfo& info = dtype_info(dtype);
  CHECK(elements >= 0 && elements % info.block_length == 0);
  const BlockFunction function = block_function(dtype);
  for (std::int64_t done = 0; done < elements; done += info.block_length) {
    function(blocks, out + done);
    blocks += info.block_bytes;
  }
}

}  // namespace plimsoll
