#include "kernels/cuda/pack.h"

#include <cstring>

#include "shared/base/check.h"

namespace plimsoll::cuda {
namespace {

std::uint32_t load_word(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, 4);
  return word;
}

// Copies a field of `bytes` bytes of one row to its place among the rows'.
const std::byte* put_field(const std::byte* from, std::size_t bytes, std::size_t row,
                           std::byte* to) {
  std::memcpy(to + bytes * row, from, bytes);
  return from + bytes;
}

// Bits 4 of 32 columns, as stored one bit a column: bit k of `bits` is column k's.
std::uint32_t spread_fifth(std::uint32_t bits) {
  std::uint32_t word = 0;
  for (unsigned t = 0; t < 8; ++t) {
    for (unsigned b = 0; b < 4; ++b) word |= (bits >> (4 * t + b) & 1U) << (8 * b + t);
  }
  return word;
}

// Q4_0 to Q8_0: each field of the block in turn.
void pack_simple(DType dtype, const std::byte* from, std::size_t row, std::byte* to) {
  from = put_field(from, 2, row, to);  // d
  to += 32;
  if (dtype == DType::q4_1 || dtype == DType::q5_1) {
    from = put_field(from, 2, row, to);  // m
    to += 32;
  }
  if (dtype == DType::q5_0 || dtype == DType::q5_1) {
    const std::uint32_t fifth = spread_fifth(load_word(from));
    std::memcpy(to + 4 * row, &fifth, 4);
    from += 4;
    to += 64;
  }
  put_field(from, dtype == DType::q8_0 ? 32 : 16, row, to);
}

// Stored K-quants keep two runs of 32 columns in the nibbles of 32 bytes (`shift` picks one); here
// each run has nibbles of its own: columns 0-15 low, 16-31 high.
void put_nibbles(const std::byte* from, unsigned shift, std::byte* to) {
  for (std::size_t t = 0; t < 4; ++t) {
    const std::uint32_t low = load_word(from + 4 * t) >> shift & 0x0f0f0f0fU;
    const std::uint32_t high = load_word(from + 16 + 4 * t) >> shift & 0x0f0f0f0fU;
    const std::uint32_t word = low | high << 4U;
    std::memcpy(to + 4 * t, &word, 4);
  }
}

void pack_four_or_five_k(DType dtype, const std::byte* from, std::size_t row, std::byte* to) {
  const bool has_fifth = dtype == DType::q5_k;
  put_field(from, 2, row, to);
  put_field(from + 2, 2, row, to + 32);
  put_field(from + 4, 12, row, to + 64);
  const std::byte* fifth = from + 16;
  const std::byte* quants = has_fifth ? from + 48 : from + 16;
  std::byte* nibbles = to + (has_fifth ? 768 : 256);
  for (unsigned s = 0; s < 8; ++s) {
    put_nibbles(quants + 32 * (s / 2), 4 * (s % 2), nibbles + 256 * s + 16 * row);
    if (!has_fifth) continue;
    std::uint32_t word = 0;
    for (unsigned t = 0; t < 8; ++t) word |= (load_word(fifth + 4 * t) >> s & 0x01010101U) << t;
    std::memcpy(to + 256 + 64 * s + 4 * row, &word, 4);
  }
}

void pack_six_k(const std::byte* from, std::size_t row, std::byte* to) {
  const std::byte* high_bits = from + 128;
  std::byte* two = to + 2048;
  std::byte* scales = two + 1024;
  put_field(from + 192, 16, row, scales);
  put_field(from + 208, 2, row, scales + 256);
  for (unsigned s = 0; s < 8; ++s) {
    const unsigned half = s / 4;
    const unsigned run = s % 4;
    put_nibbles(from + 64 * half + 32 * (run % 2), run < 2 ? 0 : 4, to + 256 * s + 16 * row);
    std::uint32_t words[2] = {0, 0};
    for (unsigned t = 0; t < 8; ++t) {
      words[t / 4] |= (load_word(high_bits + 32 * half + 4 * t) >> (2 * run) & 0x03030303U)
                      << (2 * (t % 4));
    }
    std::memcpy(two + 128 * s + 8 * row, words, 8);
  }
}

void pack_block(DType dtype, const std::byte* from, std::size_t row, std::byte* to) {
  switch (dtype) {
    case DType::q4_k:
    case DType::q5_k:
      return pack_four_or_five_k(dtype, from, row, to);
    case DType::q6_k:
      return pack_six_k(from, row, to);
    default:
      return pack_simple(dtype, from, row, to);
  }
}

}  // namespace

WeightFormat weight_format(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return WeightFormat::f32;
    case DType::f16:
      return WeightFormat::f16;
    case DType::bf16:
      return WeightFormat::bf16;
    case DType::q4_0:
      return WeightFormat::q4_0;
    case DType::q4_1:
      return WeightFormat::q4_1;
    case DType::q5_0:
      return WeightFormat::q5_0;
    case DType::q5_1:
      return WeightFormat::q5_1;
    case DType::q8_0:
      return WeightFormat::q8_0;
    case DType::q4_k:
      return WeightFormat::q4_k;
    case DType::q5_k:
      return WeightFormat::q5_k;
    case DType::q6_k:
      return WeightFormat::q6_k;
  }
  CHECK(false && "a type without a format");
  return WeightFormat::f32;
}

bool is_quantised(WeightFormat format) {
  return format != WeightFormat::f32 && format != WeightFormat::f16 && format != WeightFormat::bf16;
}

Bytes packed_block_bytes(DType dtype) {
  CHECK(is_quantised(weight_format(dtype)));
  return dtype_info(dtype).block_bytes * kGroupRows;
}

void pack_weights(const StoredSlice& slice, std::span<std::byte> destination) {
  const DTypeInfo& info = dtype_info(slice.dtype);
  const std::int64_t cols = slice.col_end - slice.col_begin;
  const std::int64_t blocks = cols / info.block_length;
  const std::int64_t row_bytes = stored_bytes(slice.dtype, slice.cols_total);
  const std::byte* first = slice.bytes.data() + slice.row_begin * row_bytes +
                           slice.col_begin / info.block_length * info.block_bytes;
  const std::int64_t rows = slice.row_end - slice.row_begin;
  const bool as_stored = !is_quantised(weight_format(slice.dtype));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::byte* from = first + row * row_bytes;
    if (as_stored) {
      const Bytes bytes = stored_bytes(slice.dtype, cols);
      std::memcpy(destination.data() + row * bytes, from, static_cast<std::size_t>(bytes));
      continue;
    }
    const Bytes block_bytes = packed_block_bytes(slice.dtype);
    std::byte* group = destination.data() + row / kGroupRows * blocks * block_bytes;
    for (std::int64_t block = 0; block < blocks; ++block) {
      pack_block(slice.dtype, from + block * info.block_bytes,
                 static_cast<std::size_t>(row % kGroupRows), group + block * block_bytes);
    }
  }
}

}  // namespace plimsoll::cuda
