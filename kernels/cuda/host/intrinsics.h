// Intrinsics: the names of CUDA that g++ lacks, for kernels that run on this CPU: identity,
// barriers, shuffles, votes, bits, and twins of warp-wide instructions. Included by
// kernels/cuda/device.h only.
//
// Calls that wait carry their place in the source as default arguments, for messages.
#pragma once

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/host/device_calls.h"
#include "shared/base/half.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's.
#define threadIdx (::plimsoll::host_cuda::current_ids->thread)
#define blockIdx (::plimsoll::host_cuda::current_ids->block)
#define blockDim (::plimsoll::host_cuda::current_ids->block_dim)
#define gridDim (::plimsoll::host_cuda::current_ids->grid_dim)
#define PLIMSOLL_CALL_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace plimsoll::host_cuda {

// They read what other lanes hold while those wait: no race, though nothing orders it.
#define PLIMSOLL_READS_LANES __attribute__((no_sanitize("thread"), noinline))

inline std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

template <typename T>
struct Shuffle {
  T in;
  T out;
  int source;
};

template <typename T>
PLIMSOLL_READS_LANES void shuffle_all(void* const* arguments, std::uint32_t mask) {
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    auto* mine = static_cast<Shuffle<T>*>(arguments[std::countr_zero(left)]);
    if ((mask >> mine->source & 1U) == 0) {
      kernel_fault("a shuffle reads a lane that is not in its mask", {"", 0, "shuffle"});
    }
    mine->out = static_cast<const Shuffle<T>*>(arguments[mine->source])->in;
  }
}

template <typename T>
T shuffle(unsigned mask, T value, int source, const Site& site) {
  Shuffle<T> own{value, value, source};
  warp_operation(mask, &own, {.function = shuffle_all<T>}, site);
  return own.out;
}

struct Vote {
  bool in;
  std::uint32_t out;
};

PLIMSOLL_READS_LANES inline void vote_all(void* const* arguments, std::uint32_t mask) {
  std::uint32_t bits = 0;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (static_cast<const Vote*>(arguments[lane])->in) bits |= 1U << lane;
  }
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    static_cast<Vote*>(arguments[std::countr_zero(left)])->out = bits;
  }
}

inline std::uint32_t vote(unsigned mask, bool value, const Site& site) {
  Vote own{value, 0};
  warp_operation(mask, &own, {.function = vote_all}, site);
  return own.out;
}

// Words of four int8 columns: lane's fragments of m16n8kK, K = 32 or 16.
struct Mma {
  int* d;
  const unsigned* a;
  const unsigned* b;
};

inline int dot4(unsigned a, unsigned b, int sum) {
  for (unsigned i = 0; i < 32; i += 8) {
    sum += static_cast<int>(static_cast<std::int8_t>(a >> i)) *
           static_cast<int>(static_cast<std::int8_t>(b >> i));
  }
  return sum;
}

template <int kHalves>
PLIMSOLL_READS_LANES void mma_all(void* const* arguments, std::uint32_t mask) {
  if (mask != 0xffffffffU) kernel_fault("mma needs all 32 lanes", {"", 0, "mma"});
  for (int lane = 0; lane < 32; ++lane) {
    const auto* own = static_cast<const Mma*>(arguments[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4;  // and i / 2: the upper or lower eight
      const int col = lane % 4 * 2 + i % 2;
      int sum = own->d[i];
      for (int k = 0; k < 4; ++k) {
        const auto* of_row = static_cast<const Mma*>(arguments[row * 4 + k]);
        const auto* of_col = static_cast<const Mma*>(arguments[col * 4 + k]);
        for (int half = 0; half < kHalves; ++half) {
          sum = dot4(of_row->a[half * 2 + i / 2], of_col->b[half], sum);
        }
      }
      own->d[i] = sum;
    }
  }
}

inline void mma_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                   PLIMSOLL_CALL_SITE) {
  Mma own{d, a, b};
  warp_operation(0xffffffffU, &own, {.function = mma_all<2>}, {file, line, "mma.m16n8k32"});
}

inline void mma_s8_half(int (&d)[4], const unsigned (&a)[2], unsigned b, PLIMSOLL_CALL_SITE) {
  Mma own{d, a, &b};
  warp_operation(0xffffffffU, &own, {.function = mma_all<1>}, {file, line, "mma.m16n8k16"});
}

}  // namespace plimsoll::host_cuda

inline void __syncthreads(PLIMSOLL_CALL_SITE) {
  plimsoll::host_cuda::block_barrier({file, line, "__syncthreads"});
}

inline void __syncwarp(unsigned mask = 0xffffffffU, PLIMSOLL_CALL_SITE) {
  plimsoll::host_cuda::warp_operation(mask, nullptr, {.orders_memory = true},
                                      {file, line, "__syncwarp"});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, PLIMSOLL_CALL_SITE) {
  const int source = static_cast<int>(plimsoll::host_cuda::lane_index()) ^ lanes;
  return plimsoll::host_cuda::shuffle(mask, value, source, {file, line, "__shfl_xor_sync"});
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, PLIMSOLL_CALL_SITE) {
  return plimsoll::host_cuda::shuffle(mask, value, source & 31, {file, line, "__shfl_sync"});
}

inline unsigned __ballot_sync(unsigned mask, bool value, PLIMSOLL_CALL_SITE) {
  return plimsoll::host_cuda::vote(mask, value, {file, line, "__ballot_sync"});
}

inline int __dp4a(int a, int b, int sum) {
  return plimsoll::host_cuda::dot4(static_cast<unsigned>(a), static_cast<unsigned>(b), sum);
}

template <typename T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
// NOLINTEND(bugprone-reserved-identifier)
