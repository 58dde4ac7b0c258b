// LinearFormats: how the vector kernels unpack each packed weight type (see packed_layout.h).
//
// Included by linear_tile.h alone. Everything is in an anonymous namespace on purpose: each unit
// compiles its own copy with its own instruction set, and the linker can never mix them.
//
// S is the instruction set: S::I a vector of S::kLanes 32-bit words, S::F of as many floats. A
// format object reads rows [lane, lane + S::kLanes) of one block. `sub_block(s)` moves to its
// s-th run of 32 columns; then vector<v>() is, for each row, the four bytes of columns 4v..4v+3 and
//   value = scale * (byte - kOffset) + min     (kHalves: scale * half scale of columns 16h..16h+15)
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll {
namespace {  // NOLINT(google-build-namespaces): see above

template <int N>
struct Int {
  static constexpr int value = N;
};

// f(Int<0>{}), f(Int<1>{}), ... f(Int<N - 1>{}).
template <int N, int I = 0, typename Function>
[[gnu::always_inline]] inline void unroll(const Function& f) {
  if constexpr (I < N) {
    f(Int<I>{});
    unroll<N, I + 1>(f);
  }
}

constexpr std::int64_t kVector = 64;  // bytes of 16 lanes of 32 bits
constexpr std::int64_t kHalf = 32;    // bytes of 16 lanes of f16
constexpr std::int64_t kNibbles = 4 * kVector;

template <class S, int v>
[[gnu::always_inline]] inline typename S::I nibbles(const std::byte* quants) {
  const typename S::I word = S::load(quants + kVector * (v % 4));
  if constexpr (v < 4) return S::bit_and(word, S::bytes(0x0f));
  return S::bit_and(S::template shift_right<4>(word), S::bytes(0x0f));
}

// Bit v of every byte, moved to bit 4.
template <class S, int v>
[[gnu::always_inline]] inline typename S::I fifth_bit(typename S::I fifth) {
  if constexpr (v < 4) fifth = S::template shift_left<4 - v>(fifth);
  if constexpr (v > 4) fifth = S::template shift_right<v - 4>(fifth);
  return S::bit_and(fifth, S::bytes(0x10));
}

// Bits 2(v % 4) and the next of every byte, moved to bits 4 and 5.
template <class S, int v>
[[gnu::always_inline]] inline typename S::I two_bits(const std::byte* two) {
  constexpr int j = v % 4;
  typename S::I word = S::load(two + kVector * (v / 4));
  if constexpr (j < 2) word = S::template shift_left<4 - 2 * j>(word);
  if constexpr (j == 3) word = S::template shift_right<2>(word);
  return S::bit_and(word, S::bytes(0x30));
}

// What the types share; each overrides what differs.
struct FormatTraits {
  static constexpr int kSubBlocks = 1;  // runs of 32 columns in a block
  static constexpr int kOffset = 0;
  static constexpr bool kMin = false;
  static constexpr bool kHalves = false;  // two scales a sub-block
  static constexpr bool kSigned = false;  // bytes are int8
  static constexpr int kSums = 8;         // products of byte pairs that a 16-bit sum can hold
};

template <class S>
struct FormatQ4_0 : FormatTraits {
  static constexpr std::int64_t kBytes = kHalf + kNibbles;
  static constexpr int kOffset = 8;
  FormatQ4_0(const std::byte* block, int lane)
      : scale(S::halves(block + 2 * lane)), quants(block + kHalf + 4 * lane) {}
  void sub_block(int) {}
  template <int v>
  typename S::I vector() const {
    return nibbles<S, v>(quants);
  }
  typename S::F scale;
  const std::byte* quants;
};

template <class S>
struct FormatQ4_1 : FormatTraits {
  static constexpr std::int64_t kBytes = 2 * kHalf + kNibbles;
  static constexpr bool kMin = true;
  FormatQ4_1(const std::byte* block, int lane)
      : scale(S::halves(block + 2 * lane)),
        min(S::halves(block + kHalf + 2 * lane)),
        quants(block + 2 * kHalf + 4 * lane) {}
  void sub_block(int) {}
  template <int v>
  typename S::I vector() const {
    return nibbles<S, v>(quants);
  }
  typename S::F scale, min;
  const std::byte* quants;
};

template <class S>
struct FormatQ5_0 : FormatTraits {
  static constexpr std::int64_t kBytes = kHalf + kVector + kNibbles;
  static constexpr int kOffset = 16;
  static constexpr int kSums = 4;
  FormatQ5_0(const std::byte* block, int lane)
      : scale(S::halves(block + 2 * lane)),
        fifth(S::load(block + kHalf + 4 * lane)),
        quants(block + kHalf + kVector + 4 * lane) {}
  void sub_block(int) {}
  template <int v>
  typename S::I vector() const {
    return S::bit_or(nibbles<S, v>(quants), fifth_bit<S, v>(fifth));
  }
  typename S::F scale;
  typename S::I fifth;
  const std::byte* quants;
};

template <class S>
struct FormatQ5_1 : FormatTraits {
  static constexpr std::int64_t kBytes = 2 * kHalf + kVector + kNibbles;
  static constexpr bool kMin = true;
  static constexpr int kSums = 4;
  FormatQ5_1(const std::byte* block, int lane)
      : scale(S::halves(block + 2 * lane)),
        min(S::halves(block + kHalf + 2 * lane)),
        fifth(S::load(block + 2 * kHalf + 4 * lane)),
        quants(block + 2 * kHalf + kVector + 4 * lane) {}
  void sub_block(int) {}
  template <int v>
  typename S::I vector() const {
    return S::bit_or(nibbles<S, v>(quants), fifth_bit<S, v>(fifth));
  }
  typename S::F scale, min;
  typename S::I fifth;
  const std::byte* quants;
};

// Signed bytes as they are, or with 128 added where the multiplier wants unsigned weights.
template <class S>
struct FormatQ8_0 : FormatTraits {
  static constexpr std::int64_t kBytes = kHalf + 8 * kVector;
  static constexpr bool kSigned = S::kMultipliesSignedWeights;
  static constexpr int kOffset = kSigned ? 0 : 128;
  static constexpr int kSums = 1;
  FormatQ8_0(const std::byte* block, int lane)
      : scale(S::halves(block + 2 * lane)), quants(block + kHalf + 4 * lane) {}
  void sub_block(int) {}
  template <int v>
  typename S::I vector() const {
    const typename S::I word = S::load(quants + kVector * v);
    if constexpr (kSigned) return word;
    return S::bit_xor(word, S::bytes(0x80));
  }
  typename S::F scale;
  const std::byte* quants;
};

// Six-bit scales and mins of Q4_K and Q5_K: byte s of lane r of `scales` is row r's of sub-block s
// (s < 4; those of s >= 4 in scales_next).
template <class S>
struct KScales {
  KScales(const std::byte* block, int lane)
      : d(S::halves(block + 2 * lane)), dmin(S::negate(S::halves(block + kHalf + 2 * lane))) {
    const std::byte* words = block + 2 * kHalf + 4 * lane;
    const typename S::I low = S::load(words), middle = S::load(words + kVector),
                        high = S::load(words + 2 * kVector);
    scales = S::bit_and(low, S::bytes(0x3f));
    mins = S::bit_and(middle, S::bytes(0x3f));
    scales_next = S::bit_or(S::bit_and(high, S::bytes(0x0f)),
                            S::bit_and(S::template shift_right<2>(low), S::bytes(0x30)));
    mins_next = S::bit_or(S::bit_and(S::template shift_right<4>(high), S::bytes(0x0f)),
                          S::bit_and(S::template shift_right<2>(middle), S::bytes(0x30)));
  }
  // REQUIRES: called for s = 0, 1, ... 7 in turn.
  void sub_block(int s) {
    if (s == 4) {
      scales = scales_next;
      mins = mins_next;
    }
    scale = S::multiply(d, S::to_float(S::bit_and(scales, S::words(0xff))));
    min = S::multiply(dmin, S::to_float(S::bit_and(mins, S::words(0xff))));
    scales = S::template shift_right<8>(scales);
    mins = S::template shift_right<8>(mins);
  }
  typename S::F d, dmin;  // dmin negated
  typename S::F scale, min;
  typename S::I scales, mins, scales_next, mins_next;
};

constexpr std::int64_t kKHeader = 2 * kHalf + 3 * kVector;

template <class S>
struct FormatQ4_K : FormatTraits, KScales<S> {
  static constexpr int kSubBlocks = 8;
  static constexpr std::int64_t kBytes = kKHeader + 8 * kNibbles;
  static constexpr bool kMin = true;
  FormatQ4_K(const std::byte* block, int lane)
      : KScales<S>(block, lane), quants(block + kKHeader + 4 * lane - kNibbles) {}
  void sub_block(int s) {
    KScales<S>::sub_block(s);
    quants += kNibbles;
  }
  template <int v>
  typename S::I vector() const {
    return nibbles<S, v>(quants);
  }
  const std::byte* quants;
};

template <class S>
struct FormatQ5_K : FormatTraits, KScales<S> {
  static constexpr int kSubBlocks = 8;
  static constexpr std::int64_t kSubBytes = kVector + kNibbles;
  static constexpr std::int64_t kBytes = kKHeader + 8 * kSubBytes;
  static constexpr bool kMin = true;
  static constexpr int kSums = 4;
  FormatQ5_K(const std::byte* block, int lane)
      : KScales<S>(block, lane), quants(block + kKHeader + kVector + 4 * lane - kSubBytes) {}
  void sub_block(int s) {
    KScales<S>::sub_block(s);
    quants += kSubBytes;
    fifth = S::load(quants - kVector);
  }
  template <int v>
  typename S::I vector() const {
    return S::bit_or(nibbles<S, v>(quants), fifth_bit<S, v>(fifth));
  }
  const std::byte* quants;
  typename S::I fifth;
};

template <class S>
struct FormatQ6_K : FormatTraits {
  static constexpr int kSubBlocks = 8;
  static constexpr std::int64_t kSubBytes = kHalf + 2 * kVector + kNibbles;
  static constexpr std::int64_t kBytes = kHalf + 8 * kSubBytes;
  static constexpr int kOffset = 32;
  static constexpr bool kHalves = true;
  static constexpr int kSums = 2;
  FormatQ6_K(const std::byte* block, int row_lane)
      : scale(S::halves(block + 2 * row_lane)), sub(block + kHalf - kSubBytes), lane(row_lane) {}
  void sub_block(int) {
    sub += kSubBytes;
    pair = S::bytes_to_words(sub + 2 * lane);  // int16 {scale 0, scale 1} in each lane
    half_scales[1] = S::template shift_right_signed<16>(pair);
    half_scales[0] = S::template shift_right_signed<16>(S::template shift_left<16>(pair));
  }
  template <int v>
  typename S::I vector() const {
    return S::bit_or(nibbles<S, v>(sub + kHalf + 2 * kVector + 4 * lane),
                     two_bits<S, v>(sub + kHalf + 4 * lane));
  }
  typename S::F scale;
  const std::byte* sub;
  int lane;
  typename S::I pair;
  typename S::I half_scales[2];  // int32
};

}  // namespace
}  // namespace plimsoll
