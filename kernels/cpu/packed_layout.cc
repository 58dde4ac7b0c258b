#include "kernels/cpu/packed_layout.h"

#include <cstring>

#include "shared/base/check.h"
#include "shared/base/half.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVector = 64;  // bytes of 16 lanes of 32 bits
constexpr std::int64_t kHalves = 32;  // bytes of 16 lanes of f16
constexpr std::int64_t kNibbles = 4 * kVector;

template <typename T>
T load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

float half_at(const std::byte* halves, int lane) {
  return half_to_float(load<std::uint16_t>(halves + 2 * lane));
}

// Four bits of each of the 32 columns, and the 4-bit column's place in `fifth` and `two`.
void read_nibbles(const std::byte* quants, int lane, std::int8_t* out) {
  for (int k = 0; k < 16; ++k) {
    const auto byte = static_cast<unsigned>(quants[kVector * (k / 4) + 4 * lane + k % 4]);
    out[k] = static_cast<std::int8_t>(byte & 15u);
    out[k + 16] = static_cast<std::int8_t>(byte >> 4);
  }
}

void read_fifth(const std::byte* fifth, int lane, std::int8_t* out) {
  for (int k = 0; k < 32; ++k) {
    const auto byte = static_cast<unsigned>(fifth[4 * lane + k % 4]);
    out[k] = static_cast<std::int8_t>(out[k] | ((byte >> (k / 4)) & 1u) << 4);
  }
}

void read_two(const std::byte* two, int lane, std::int8_t* out) {
  for (int k = 0; k < 32; ++k) {
    const auto byte = static_cast<unsigned>(two[kVector * (k / 16) + 4 * lane + k % 4]);
    out[k] = static_cast<std::int8_t>(out[k] | ((byte >> (k % 16 / 4 * 2)) & 3u) << 4);
  }
}

void subtract(std::int8_t* quants, int offset) {
  for (int k = 0; k < 32; ++k) quants[k] = static_cast<std::int8_t>(quants[k] - offset);
}

// Six-bit scale and min of sub-block s out of a row's twelve bytes (byte i in lane word i / 4).
void read_scale_min(const std::byte* words, int lane, int s, int& scale, int& min) {
  const auto byte = [&](int i) {
    return static_cast<int>(words[kVector * (i / 4) + 4 * lane + i % 4]);
  };
  if (s < 4) {
    scale = byte(s) & 63;
    min = byte(s + 4) & 63;
  } else {
    scale = (byte(s + 4) & 15) | (byte(s - 4) >> 6) << 4;
    min = (byte(s + 4) >> 4) | (byte(s) >> 6) << 4;
  }
}

void unpack_simple(DType dtype, const std::byte* block, int lane, UnpackedRow& row) {
  row.scale[0] = row.scale[1] = half_at(block, lane);
  row.min = 0;
  block += kHalves;
  if (dtype == DType::q4_1 || dtype == DType::q5_1) {
    row.min = half_at(block, lane);
    block += kHalves;
  }
  if (dtype == DType::q8_0) {
    for (int k = 0; k < 32; ++k) {
      row.quants[k] = load<std::int8_t>(block + kVector * (k / 4) + 4 * lane + k % 4);
    }
    return;
  }
  if (dtype == DType::q4_0 || dtype == DType::q4_1) {
    read_nibbles(block, lane, row.quants);
    if (dtype == DType::q4_0) subtract(row.quants, 8);
    return;
  }
  read_nibbles(block + kVector, lane, row.quants);
  read_fifth(block, lane, row.quants);
  if (dtype == DType::q5_0) subtract(row.quants, 16);
}

void unpack_k(DType dtype, const std::byte* block, int s, int lane, UnpackedRow& row) {
  const float d = half_at(block, lane);
  if (dtype == DType::q6_k) {
    const std::byte* sub = block + kHalves + s * (kHalves + 2 * kVector + kNibbles);
    row.scale[0] = d * static_cast<float>(load<std::int8_t>(sub + 2 * lane));
    row.scale[1] = d * static_cast<float>(load<std::int8_t>(sub + 2 * lane + 1));
    row.min = 0;
    read_nibbles(sub + kHalves + 2 * kVector, lane, row.quants);
    read_two(sub + kHalves, lane, row.quants);
    subtract(row.quants, 32);
    return;
  }
  int scale = 0, min = 0;
  read_scale_min(block + 2 * kHalves, lane, s, scale, min);
  row.scale[0] = row.scale[1] = d * static_cast<float>(scale);
  row.min = -half_at(block + kHalves, lane) * static_cast<float>(min);
  const std::byte* subs = block + 2 * kHalves + 3 * kVector;
  if (dtype == DType::q4_k) {
    read_nibbles(subs + s * kNibbles, lane, row.quants);
  } else {
    const std::byte* sub = subs + s * (kVector + kNibbles);
    read_nibbles(sub + kVector, lane, row.quants);
    read_fifth(sub, lane, row.quants);
  }
}

}  // namespace

bool is_quantised(DType dtype) {
  return dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16;
}

void unpack_row(DType dtype, const std::byte* group, std::int64_t sub_block, int lane,
                UnpackedRow& row) {
  const DTypeInfo& info = dtype_info(dtype);
  const std::int64_t per_block = info.block_length / kSubBlock;
  CHECK(per_block >= 1);
  const std::byte* block = group + sub_block / per_block * info.block_bytes * kPackedRows;
  if (per_block == 1) {
    unpack_simple(dtype, block, lane, row);
  } else {
    unpack_k(dtype, block, static_cast<int>(sub_block % per_block), lane, row);
  }
}

float unpack_float(DType dtype, const std::byte* group, std::int64_t cols, std::int64_t col,
                   int lane) {
  std::int64_t index = col * kPackedRows + lane;
  const bool has_pair = dtype == DType::bf16 && (col | 1) < cols;
  if (has_pair) index = col / 2 * 2 * kPackedRows + 2 * lane + col % 2;
  if (dtype == DType::f32) return load<float>(group + 4 * index);
  const auto bits = load<std::uint16_t>(group + 2 * index);
  if (dtype == DType::f16) return half_to_float(bits);
  return bfloat16_to_float(bits);
}

}  // namespace plimsoll
