// IpcLayout: how the buffer is laid out that a rank's peers write to. Pure; kernels and the host.
//
// Flags [phase][writing rank][block], each on a line of its own and written by one block of one
// rank; then two halves, which calls use in turn. In a half:
//   one shot:            the partial sums of each rank   [ranks][pairs] Pair
//   two shots, staged:   those of this rank's chunk      [ranks][chunk] Pair, then
//                        the results of all chunks       [ranks][chunk] FloatPair
#pragma once

#include <cstdint>

#include "kernels/cuda/kernel_arguments.h"

#if defined(__CUDACC__)
#define EVERYWHERE __host__ __device__ constexpr
#else
#define EVERYWHERE constexpr
#endif

namespace plimsoll::cuda {

struct alignas(16) Pair {  // of partial sums
  double a, b;
};
struct alignas(8) FloatPair {  // of results
  float a, b;
};

struct alignas(128) IpcFlag {
  std::uint64_t epoch;  // of the last call whose part this is; never wraps
};

constexpr int kIpcPhases = 2;
constexpr std::int64_t kIpcFlagBytes =
    static_cast<std::int64_t>(sizeof(IpcFlag)) * kIpcPhases * kIpcRanksMax * kIpcBlocksMax;

enum class ReduceKind : std::int32_t { one_shot, two_shot, staged };

// Of the chunks that ranks own, all but the last.
EVERYWHERE std::int64_t chunk_pairs(std::int64_t pairs, int ranks) {
  return (pairs + ranks - 1) / ranks;
}

// Of one call that a half holds.
EVERYWHERE std::int64_t pairs_max(ReduceKind kind, int ranks, std::int64_t half_bytes) {
  constexpr auto kPair = static_cast<std::int64_t>(sizeof(Pair));
  constexpr auto kBoth = kPair + static_cast<std::int64_t>(sizeof(FloatPair));
  return kind == ReduceKind::one_shot ? half_bytes / (ranks * kPair)
                                      : half_bytes / (ranks * kBoth) * ranks;
}

EVERYWHERE std::int64_t ipc_buffer_bytes(std::int64_t half_bytes) {
  return kIpcFlagBytes + 2 * half_bytes;
}

// What a call that could not end leaves for the host, in one word that is not 0.
struct IpcFault {
  enum Kind : std::uint32_t { none = 0, aborted = 1, late = 2 };
  Kind kind = none;
  std::int32_t phase = 0;
  std::int32_t peer = 0;    // that was waited for
  std::uint64_t epoch = 0;  // modulo 2^32

  EVERYWHERE std::uint64_t word() const {
    return static_cast<std::uint64_t>(kind) << 56U | static_cast<std::uint64_t>(phase) << 48U |
           static_cast<std::uint64_t>(peer) << 32U | (epoch & 0xffffffffU);
  }
  static EVERYWHERE IpcFault of(std::uint64_t word) {
    return {.kind = static_cast<Kind>(word >> 56U),
            .phase = static_cast<std::int32_t>(word >> 48U & 0xffU),
            .peer = static_cast<std::int32_t>(word >> 32U & 0xffffU),
            .epoch = word & 0xffffffffU};
  }
};

}  // namespace plimsoll::cuda
