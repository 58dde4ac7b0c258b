// StoredMatrix: a random weight matrix in a file's layout, and its values in double precision.
//
// The dequantiser here reads the stored layout, element by element, and shares no code with the
// kernels: it is what packing and unpacking are checked against.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/check.h"
#include "shared/model/dtype.h"

namespace plimsoll {

constexpr DType kAllDTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,
                                DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                                DType::q4_k, DType::q5_k, DType::q6_k};

struct StoredMatrix {
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::vector<std::byte> bytes;
  std::vector<double> values;  // [rows, cols]

  StoredSlice slice() const {
    return {.dtype = dtype,
            .bytes = bytes,
            .cols_total = cols,
            .row_begin = 0,
            .row_end = rows,
            .col_begin = 0,
            .col_end = cols};
  }
  double at(std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
};

inline double half_value(const std::uint8_t* p) {
  _Float16 half;
  std::memcpy(&half, p, 2);
  return static_cast<double>(half);
}

// Six-bit scale and min of sub-block s of Q4_K and Q5_K.
inline void k_scale_min(const std::uint8_t* b, int s, int& scale, int& min) {
  if (s < 4) {
    scale = b[s] & 63;
    min = b[s + 4] & 63;
  } else {
    scale = (b[s + 4] & 15) | (b[s - 4] >> 6) << 4;
    min = (b[s + 4] >> 4) | (b[s] >> 6) << 4;
  }
}

inline double k_quant_value(DType dtype, const std::uint8_t* b, int e) {
  if (dtype == DType::q6_k) {
    const int h = e / 128, r = e % 128 / 32, l = e % 32;
    const int low = b[64 * h + 32 * (r % 2) + l] >> (r < 2 ? 0 : 4) & 15;
    const int high = b[128 + 32 * h + l] >> (2 * r) & 3;
    const auto scale = static_cast<std::int8_t>(b[192 + 8 * h + 2 * r + l / 16]);
    return half_value(b + 208) * scale * ((low | high << 4) - 32);
  }
  const int c = e / 64, half = e % 64 / 32, l = e % 32, s = 2 * c + half;
  int scale = 0, min = 0;
  k_scale_min(b + 4, s, scale, min);
  const int start = dtype == DType::q4_k ? 16 : 48;
  int q = b[start + 32 * c + l] >> (4 * half) & 15;
  if (dtype == DType::q5_k) q |= (b[16 + l] >> s & 1) << 4;
  return half_value(b) * scale * q - half_value(b + 2) * min;
}

// Element e of the stored block at b.
inline double stored_value(DType dtype, const std::uint8_t* b, int e) {
  const auto nibble = [&](int start) {
    return e < 16 ? b[start + e] & 15 : b[start + e - 16] >> 4;
  };
  const auto fifth = [&](int start) {
    std::uint32_t bits;
    std::memcpy(&bits, b + start, 4);
    return static_cast<int>(bits >> e & 1u) << 4;
  };
  switch (dtype) {
    case DType::f32: {
      float value;
      std::memcpy(&value, b, 4);
      return value;
    }
    case DType::f16:
      return half_value(b);
    case DType::bf16: {
      const std::uint32_t bits = static_cast<std::uint32_t>(b[0] | b[1] << 8) << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    case DType::q4_0:
      return half_value(b) * (nibble(2) - 8);
    case DType::q4_1:
      return half_value(b) * nibble(4) + half_value(b + 2);
    case DType::q5_0:
      return half_value(b) * ((nibble(6) | fifth(2)) - 16);
    case DType::q5_1:
      return half_value(b) * (nibble(8) | fifth(4)) + half_value(b + 2);
    case DType::q8_0:
      return half_value(b) * static_cast<std::int8_t>(b[2 + e]);
    default:
      return k_quant_value(dtype, b, e);
  }
}

// Random bits everywhere, but scales and float elements of everyday size.
inline StoredMatrix random_matrix(DType dtype, std::int64_t rows, std::int64_t cols,
                                  std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const DTypeInfo& info = dtype_info(dtype);
  StoredMatrix matrix{.dtype = dtype, .rows = rows, .cols = cols, .bytes = {}, .values = {}};
  matrix.bytes.resize(static_cast<std::size_t>(stored_bytes(dtype, rows * cols)));
  auto* bytes = reinterpret_cast<std::uint8_t*>(matrix.bytes.data());
  for (std::size_t i = 0; i < matrix.bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random());
  }
  const auto put_half = [&](std::uint8_t* to, float size) {
    const auto half = static_cast<_Float16>(size * uniform(random));
    std::memcpy(to, &half, 2);
  };
  const std::int64_t blocks = rows * cols / info.block_length;
  for (std::int64_t i = 0; i < blocks; ++i) {
    std::uint8_t* b = bytes + i * info.block_bytes;
    if (dtype == DType::f32) {
      const float value = uniform(random);
      std::memcpy(b, &value, 4);
    } else if (dtype == DType::bf16) {
      const float value = uniform(random);
      std::memcpy(b, reinterpret_cast<const char*>(&value) + 2, 2);
    } else if (dtype == DType::q6_k) {
      put_half(b + 208, 0.001F);
    } else {
      put_half(b, dtype == DType::f16 ? 1.0F : 0.05F);
      const bool has_min = dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k ||
                           dtype == DType::q5_k;
      if (has_min) put_half(b + 2, 0.3F);
    }
    for (int e = 0; e < info.block_length; ++e) {
      matrix.values.push_back(stored_value(dtype, b, e));
    }
  }
  return matrix;
}

// Zeroed memory aligned to 64 bytes.
class AlignedBytes {
 public:
  explicit AlignedBytes(Bytes size)
      : size_(static_cast<std::size_t>(size)), storage_(size_ / sizeof(Line) + 1) {}
  std::span<std::byte> span() { return {storage_.front().bytes, size_}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::size_t size_;
  std::vector<Line> storage_;
};

// A packed matrix of one or more stored ones, with its memory.
class PackedWeights {
 public:
  PackedWeights(Backend& backend, const std::vector<const StoredMatrix*>& parts) {
    for (const StoredMatrix* stored : parts) {
      memory_.emplace_back(packed_bytes(stored->dtype, stored->rows, stored->cols));
      auto part = backend.pack(stored->slice(), memory_.back().span());
      CHECK(part.has_value());
      matrix.parts.push_back(*part);
      matrix.rows += stored->rows;
      matrix.cols = stored->cols;
    }
  }
  PackedMatrix matrix;

 private:
  std::vector<AlignedBytes> memory_;
};

inline std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace plimsoll
