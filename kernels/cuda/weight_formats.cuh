// WeightFormats: how packed weights lie in device memory, and how a lane reads them.
//
// F32, F16 and BF16 are rows as stored. Quantised types lie in groups of 16 rows, block by block
// along the columns; within a block each field has the 16 rows side by side, so that a half-warp
// reads 16 rows' quants of 32 columns in one 256-byte run, and a warp reads the operand of one
// m16n8k32 in two of 128. Sizes equal the stored ones.
//   nibbles  16 bytes a row: word t: low nibbles are columns 4 t …, high ones 16 + 4 t …
//   fifth    4 bytes a row: bit t of byte b is bit 4 of column 4 t + b
//   two      8 bytes a row: bits 2 t, 2 t + 1 of byte b of word h are bits 4, 5 of column 16 h + 4
//   t
//            + b
//   Q4_0 d, nibbles · Q4_1 d, m, nibbles · Q5_0 d, fifth, nibbles · Q5_1 d, m, fifth, nibbles
//   Q8_0 d, 32 bytes a row · Q4_K d, dmin, 12 bytes of scales a row, 8 times nibbles
//   Q5_K d, dmin, scales, 8 times fifth, 8 times nibbles · Q6_K 8 times nibbles, 8 times two, 16
//   scales a row, d
// kernels/cuda/pack.cc writes them.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::dev {

using cuda::kGroupRows;

// w[k] = scale[k / 16] * (q[k] - kOffset) + min.
struct Factors {
  float scale[2];
  float min;
};

// Columns 4 t … and 16 + 4 t … of 32, a byte each.
struct QuantWords {
  unsigned low;
  unsigned high;
};

template <typename T>
DEVICE T load(const unsigned char* address) {
  return *reinterpret_cast<const T*>(address);
}

DEVICE float load_half(const unsigned char* halves, int row) {
  return half_to_float(load<std::uint16_t>(halves + 2 * row));
}

DEVICE unsigned word_of(const uint4& words, int t) {
  return t == 0 ? words.x : t == 1 ? words.y : t == 2 ? words.z : words.w;
}

DEVICE QuantWords nibble_words(unsigned word) {
  return {word & 0x0f0f0f0fU, word >> 4U & 0x0f0f0f0fU};
}

DEVICE QuantWords add_fifth(QuantWords words, unsigned fifth, int t) {
  return {words.low | (fifth >> static_cast<unsigned>(t) & 0x01010101U) << 4U,
          words.high | (fifth >> static_cast<unsigned>(4 + t) & 0x01010101U) << 4U};
}

// Every format: kSubBlocks of 32 columns a block, kGroupBytes a block of 16 rows; what a row has
// beside its nibbles is its Extra.
struct NoExtra {};

template <bool has_min>
struct FourBits {  // Q4_0, Q4_1
  using Extra = NoExtra;
  static constexpr int kSubBlocks = 1;
  static constexpr int kQuants = has_min ? 64 : 32;
  static constexpr int kGroupBytes = kQuants + 256;
  static constexpr int kOffset = has_min ? 0 : 8;
  static constexpr bool kHasMin = has_min;
  static constexpr bool kTwoScales = false;
  static DEVICE Factors factors(const unsigned char* block, int, int row) {
    const float d = load_half(block, row);
    return {{d, d}, has_min ? load_half(block + 32, row) : 0.0F};
  }
  static DEVICE Extra extra(const unsigned char*, int, int) { return {}; }
  static DEVICE const unsigned char* quants(const unsigned char* block, int, int row) {
    return block + kQuants + 16 * row;
  }
  static DEVICE QuantWords words(unsigned word, const Extra&, int) { return nibble_words(word); }
};

template <bool has_min>
struct FiveBits {  // Q5_0, Q5_1
  using Extra = unsigned;
  static constexpr int kSubBlocks = 1;
  static constexpr int kFifth = has_min ? 64 : 32;
  static constexpr int kGroupBytes = kFifth + 64 + 256;
  static constexpr int kOffset = has_min ? 0 : 16;
  static constexpr bool kHasMin = has_min;
  static constexpr bool kTwoScales = false;
  static DEVICE Factors factors(const unsigned char* block, int, int row) {
    const float d = load_half(block, row);
    return {{d, d}, has_min ? load_half(block + 32, row) : 0.0F};
  }
  static DEVICE Extra extra(const unsigned char* block, int, int row) {
    return load<unsigned>(block + kFifth + 4 * row);
  }
  static DEVICE const unsigned char* quants(const unsigned char* block, int, int row) {
    return block + kFifth + 64 + 16 * row;
  }
  static DEVICE QuantWords words(unsigned word, const Extra& fifth, int t) {
    return add_fifth(nibble_words(word), fifth, t);
  }
};

struct EightBits {  // Q8_0
  using Extra = NoExtra;
  static constexpr int kSubBlocks = 1;
  static constexpr int kGroupBytes = 32 + 512;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = false;
  static constexpr bool kTwoScales = false;
  static DEVICE Factors factors(const unsigned char* block, int, int row) {
    const float d = load_half(block, row);
    return {{d, d}, 0.0F};
  }
  static DEVICE Extra extra(const unsigned char*, int, int) { return {}; }
  static DEVICE const unsigned char* quants(const unsigned char* block, int, int row) {
    return block + 32 + 32 * row;
  }
};

// d sc q - dmin mn: six-bit sc and mn of sub-block s out of a row's twelve bytes.
DEVICE Factors scale_min(const unsigned char* block, int s, int row) {
  const unsigned char* bytes = block + 64 + 12 * row;
  const int first = bytes[s];
  const int second = bytes[s + 4];
  int scale = first & 63;
  int min = second & 63;
  if (s >= 4) {
    scale = (second & 15) | bytes[s - 4] >> 6 << 4;
    min = second >> 4 | first >> 6 << 4;
  }
  const float factor = load_half(block, row) * static_cast<float>(scale);
  return {{factor, factor}, -load_half(block + 32, row) * static_cast<float>(min)};
}

struct FourBitsK {  // Q4_K
  using Extra = NoExtra;
  static constexpr int kSubBlocks = 8;
  static constexpr int kGroupBytes = 256 + 8 * 256;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = true;
  static constexpr bool kTwoScales = false;
  static DEVICE Factors factors(const unsigned char* block, int s, int row) {
    return scale_min(block, s, row);
  }
  static DEVICE Extra extra(const unsigned char*, int, int) { return {}; }
  static DEVICE const unsigned char* quants(const unsigned char* block, int s, int row) {
    return block + 256 + 256 * s + 16 * row;
  }
  static DEVICE QuantWords words(unsigned word, const Extra&, int) { return nibble_words(word); }
};

struct FiveBitsK {  // Q5_K
  using Extra = unsigned;
  static constexpr int kSubBlocks = 8;
  static constexpr int kGroupBytes = 256 + 8 * 64 + 8 * 256;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMin = true;
  static constexpr bool kTwoScales = false;
  static DEVICE Factors factors(const unsigned char* block, int s, int row) {
    return scale_min(block, s, row);
  }
  static DEVICE Extra extra(const unsigned char* block, int s, int row) {
    return load<unsigned>(block + 256 + 64 * s + 4 * row);
  }
  static DEVICE const unsigned char* quants(const unsigned char* block, int s, int row) {
    return block + 768 + 256 * s + 16 * row;
  }
  static DEVICE QuantWords words(unsigned word, const Extra& fifth, int t) {
    return add_fifth(nibble_words(word), fifth, t);
  }
};

struct SixBitsK {  // Q6_K
  using Extra = uint2;
  static constexpr int kSubBlocks = 8;
  static constexpr int kTwo = 8 * 256;
  static constexpr int kScales = kTwo + 8 * 128;
  static constexpr int kD = kScales + 256;
  static constexpr int kGroupBytes = kD + 32;
  static constexpr int kOffset = 32;
  static constexpr bool kHasMin = false;
  static constexpr bool kTwoScales = true;
  static DEVICE Factors factors(const unsigned char* block, int s, int row) {
    const float d = load_half(block + kD, row);
    const auto* scales = reinterpret_cast<const std::int8_t*>(block + kScales + 16 * row + 2 * s);
    return {{d * static_cast<float>(scales[0]), d * static_cast<float>(scales[1])}, 0.0F};
  }
  static DEVICE Extra extra(const unsigned char* block, int s, int row) {
    return load<uint2>(block + kTwo + 128 * s + 8 * row);
  }
  static DEVICE const unsigned char* quants(const unsigned char* block, int s, int row) {
    return block + 256 * s + 16 * row;
  }
  static DEVICE QuantWords words(unsigned word, const Extra& two, int t) {
    const QuantWords low = nibble_words(word);
    const auto shift = static_cast<unsigned>(2 * t);
    return {low.low | (two.x >> shift & 0x03030303U) << 4U,
            low.high | (two.y >> shift & 0x03030303U) << 4U};
  }
};

// Words t = 0 … 3 of 32 columns of one row.
template <typename Format>
struct RowQuants {
  uint4 first;
  typename Format::Extra extra;
  DEVICE explicit RowQuants(const unsigned char* block, int s, int row)
      : first(load<uint4>(Format::quants(block, s, row))), extra(Format::extra(block, s, row)) {}
  DEVICE QuantWords words(int t) const { return Format::words(word_of(first, t), extra, t); }
};

template <>
struct RowQuants<EightBits> {
  uint4 first, second;
  DEVICE explicit RowQuants(const unsigned char* block, int s, int row)
      : first(load<uint4>(EightBits::quants(block, s, row))),
        second(load<uint4>(EightBits::quants(block, s, row) + 16)) {}
  DEVICE QuantWords words(int t) const { return {word_of(first, t), word_of(second, t)}; }
};

// Word t alone, for a lane of mma.
template <typename Format>
DEVICE QuantWords lane_words(const unsigned char* block, int s, int row, int t) {
  const auto word = load<unsigned>(Format::quants(block, s, row) + 4 * t);
  return Format::words(word, Format::extra(block, s, row), t);
}
template <>
DEVICE QuantWords lane_words<EightBits>(const unsigned char* block, int s, int row, int t) {
  const unsigned char* quants = EightBits::quants(block, s, row);
  return {load<unsigned>(quants + 4 * t), load<unsigned>(quants + 16 + 4 * t)};
}

// One more product of 32 columns: sums of q · x over columns 0-15 and 16-31 into f32.
template <typename Format>
DEVICE float add_product(float sum, const Factors& factors, const cuda::ActivationScale& x, int low,
                         int high) {
  const int low_sum = x.negative_sums[0];
  const int high_sum = x.negative_sums[1];
  if constexpr (Format::kTwoScales) {
    return sum +
           x.scale * (factors.scale[0] * static_cast<float>(low + Format::kOffset * low_sum) +
                      factors.scale[1] * static_cast<float>(high + Format::kOffset * high_sum));
  }
  const int all = low + high + Format::kOffset * (low_sum + high_sum);
  sum += factors.scale[0] * x.scale * static_cast<float>(all);
  if constexpr (Format::kHasMin) {
    sum += factors.min * (x.scale * static_cast<float>(-(low_sum + high_sum)));
  }
  return sum;
}

}  // namespace plimsoll::dev
