#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

namespace plimsoll {
namespace {

constexpr std::int64_t kVector = 64;
constexpr std::int64_t kHalves = 32;
constexpr std::int64_t kNibbles = 4 * kVector;

std::uint32_t load_word(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, 4);
  return word;
}

// The word of row `lane` in the vector at `to`.
void put_word(std::uint32_t word, int lane, std::byte* to) { std::memcpy(to + 4 * lane, &word, 4); }

// Copies `words` 32-bit words of one row to as many vectors.
void scatter_words(const std::byte* from, int words, int lane, std::byte* to) {
  for (int v = 0; v < words; ++v) put_word(load_word(from + 4 * v), lane, to + kVector * v);
}

void copy_half(const std::byte* from, int lane, std::byte* to) {
  std::memcpy(to + 2 * lane, from, 2);
}

// The sub-block's fifth bits, bit k of `bits` being column k's, as one lane of the `fifth` vector.
void put_fifth(std::uint32_t bits, int lane, std::byte* to) {
  std::uint32_t word = 0;
  for (int v = 0; v < 8; ++v) {
    // The product puts bit b of the four to bit 8 b.
    word |= (((bits >> (4 * v)) & 15u) * 0x00204081u & 0x01010101u) << v;
  }
  put_word(word, lane, to);
}

// Stored K-quants keep two sub-blocks in the nibbles of 32 bytes (`shift` 0 or 4 picks one); here
// each sub-block gets its own nibbles.
void put_nibbles(const std::byte* from, int shift, int lane, std::byte* to) {
  for (int v = 0; v < 4; ++v) {
    const std::uint32_t low = load_word(from + 4 * v) >> shift & 0x0f0f0f0fu;
    const std::uint32_t high = load_word(from + 16 + 4 * v) >> shift & 0x0f0f0f0fu;
    put_word(low | high << 4, lane, to + kVector * v);
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
    put_fifth(load_word(from), lane, to);
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
    std::uint32_t word = 0;
    for (int v = 0; v < 8; ++v) word |= (load_word(fifth + 4 * v) >> s & 0x01010101u) << v;
    put_word(word, lane, sub);
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
    for (int v = 0; v < 8; ++v) {
      words[v / 4] |= (load_word(two + 32 * h + 4 * v) >> (2 * r) & 0x03030303u) << (2 * (v % 4));
    }
    put_word(words[0], lane, sub + kHalves);
    put_word(words[1], lane, sub + kHalves + kVector);
    put_nibbles(low + 64 * h + 32 * (r % 2), r < 2 ? 0 : 4, lane, sub + kHalves + 2 * kVector);
  }
}

void pack_block(DType dtype, const std::byte* from, int lane, std::byte* to) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to + 4 * lane, from, 4);
      return;
    case DType::f16:
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

// BF16 rows of `cols` columns, two columns at a time; a last one without a pair is packed alone.
void pack_pairs(const std::byte* from, std::int64_t row_bytes, std::int64_t cols, int lanes,
                std::byte* to) {
  for (std::int64_t c = 0; c < cols; c += 2, from += 4, to += kVector) {
    for (int lane = 0; lane < lanes; ++lane) {
      if (c + 1 < cols) {
        put_word(load_word(from + lane * row_bytes), lane, to);
      } else {
        copy_half(from + lane * row_bytes, lane, to);
      }
    }
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
    if (slice.dtype == DType::bf16) {
      pack_pairs(first + row * row_bytes, row_bytes, blocks, lanes, to);
      continue;
    }
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
