#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

namespace plimsoll {
namespace {

constexpr std::int64_t kVector = 64;
constexpr std::int64_t kHalves = 32;
constexpr std::int64_t kNibbles = 4 * kVector;

// Copies `words` 32-bit words of one row to lane `lane` of as many vectors.
void scatter_words(const std::byte* from, int words, int lane, std::byte* to) {
  for (int i = 0; i < words; ++i) std::memcpy(to + kVector * i + 4 * lane, from + 4 * i, 4);
}

void copy_half(const std::byte* from, int lane, std::byte* to) {
  std::memcpy(to + 2 * lane, from, 2);
}

// The sub-block's fifth bits, bit k of `bits` being column k's, as one lane of the `fifth` vector.
void put_fifth(std::uint32_t bits, int lane, std::byte* to) {
  std::uint32_t word = 0;
  for (int k = 0; k < 32; ++k) word |= ((bits >> k) & 1u) << (8 * (k % 4) + k / 4);
  std::memcpy(to + 4 * lane, &word, 4);
}

// Stored K-quants keep two sub-blocks in the nibbles of 32 bytes (`shift` 0 or 4 picks one); here
// each sub-block gets its own nibbles.
void put_nibbles(const std::byte* from, int shift, int lane, std::byte* to) {
  for (int k = 0; k < 16; ++k) {
    const unsigned low = (static_cast<unsigned>(from[k]) >> shift) & 15u;
    const unsigned high = (static_cast<unsigned>(from[k + 16]) >> shift) & 15u;
    to[kVector * (k / 4) + 4 * lane + k % 4] = static_cast<std::byte>(low | high << 4);
  }
}

void pack_simple(DType dtype, const std::byte* from, int lane, std::byte* to) {
  copy_half(from, lane, to);  // d
  from += 2;
  to += kHalves;
  if (dtype == DType::q4_1 || dtype == DType::q5_1) {
    copy_half(from, lane, to);  // m
    from += 2;
    to += kHalves;
  }
  if (dtype == DType::q5_0 || dtype == DType::q5_1) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from, 4);
    put_fifth(bits, lane, to);
    from += 4;
    to += kVector;
  }
  scatter_words(from, dtype == DType::q8_0 ? 8 : 4, lane, to);
}

void pack_q4_k(const std::byte* from, int lane, std::byte* to) {
  copy_half(from, lane, to);
  copy_half(from + 2, lane, to + kHalves);
  scatter_words(from + 4, 3, lane, to + 2 * kHalves);
  const std::byte* quants = from + 16;
  std::byte* subs = to + 2 * kHalves + 3 * kVector;
  for (int s = 0; s < 8; ++s) {
    put_nibbles(quants + 32 * (s / 2), 4 * (s % 2), lane, subs + kNibbles * s);
  }
}

void pack_q5_k(const std::byte* from, int lane, std::byte* to) {
  copy_half(from, lane, to);
  copy_half(from + 2, lane, to + kHalves);
  scatter_words(from + 4, 3, lane, to + 2 * kHalves);
  const std::byte* fifth = from + 16;
  const std::byte* quants = from + 48;
  std::byte* subs = to + 2 * kHalves + 3 * kVector;
  for (int s = 0; s < 8; ++s) {
    std::byte* sub = subs + (kVector + kNibbles) * s;
    std::uint32_t bits = 0;
    for (int k = 0; k < 32; ++k) bits |= ((static_cast<unsigned>(fifth[k]) >> s) & 1u) << k;
    put_fifth(bits, lane, sub);
    put_nibbles(quants + 32 * (s / 2), 4 * (s % 2), lane, sub + kVector);
  }
}

void pack_q6_k(const std::byte* from, int lane, std::byte* to) {
  const std::byte* low = from;
  const std::byte* two = from + 128;
  const std::byte* scales = from + 192;
  copy_half(from + 208, lane, to);
  for (int s = 0; s < 8; ++s) {
    std::byte* sub = to + kHalves + s * (kHalves + 2 * kVector + kNibbles);
    std::memcpy(sub + 2 * lane, scales + 2 * s, 2);
    const int h = s / 4, r = s % 4;  // stored: half of 128, quarter of it
    std::uint32_t words[2] = {0, 0};
    for (int k = 0; k < 32; ++k) {
      const unsigned bits = (static_cast<unsigned>(two[32 * h + k]) >> (2 * r)) & 3u;
      words[k / 16] |= bits << (8 * (k % 4) + k % 16 / 4 * 2);
    }
    std::memcpy(sub + kHalves + 4 * lane, &words[0], 4);
    std::memcpy(sub + kHalves + kVector + 4 * lane, &words[1], 4);
    put_nibbles(low + 64 * h + 32 * (r % 2), r < 2 ? 0 : 4, lane, sub + kHalves + 2 * kVector);
  }
}

void pack_block(DType dtype, const std::byte* from, int lane, std::byte* to) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to + 4 * lane, from, 4);
      return;
    case DType::f16:
    case DType::bf16:
      copy_half(from, lane, to);
      return;
    case DType::q4_k:
      return pack_q4_k(from, lane, to);
    case DType::q5_k:
      return pack_q5_k(from, lane, to);
    case DType::q6_k:
      return pack_q6_k(from, lane, to);
    default:
      return pack_simple(dtype, from, lane, to);
  }
}

}  // namespace

void pack_groups(const StoredSlice& slice, std::int64_t group_begin, std::int64_t group_end,
                 std::byte* destination) {
  const DTypeInfo& info = dtype_info(slice.dtype);
  const std::int64_t blocks = (slice.col_end - slice.col_begin) / info.block_length;
  const std::int64_t row_bytes = stored_bytes(slice.dtype, slice.cols_total);
  const std::int64_t packed_block = info.block_bytes * kPackedRows;
  const std::int64_t rows = slice.row_end - slice.row_begin;
  const std::byte* first = slice.bytes.data() + slice.row_begin * row_bytes +
                           slice.col_begin / info.block_length * info.block_bytes;
  for (std::int64_t group = group_begin; group < group_end; ++group) {
    std::byte* to = destination + group * blocks * packed_block;
    const std::int64_t row = group * kPackedRows;
    const int lanes = static_cast<int>(std::min(kPackedRows, rows - row));
    // Block by block over all rows: the destination is written once, in order.
    for (std::int64_t block = 0; block < blocks; ++block, to += packed_block) {
      const std::byte* from = first + row * row_bytes + block * info.block_bytes;
      for (int lane = 0; lane < lanes; ++lane) {
        pack_block(slice.dtype, from + lane * row_bytes, lane, to);
      }
    }
  }
}

}  // namespace plimsoll
