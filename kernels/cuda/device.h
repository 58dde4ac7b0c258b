// Device: the one header that a kernel includes for the device it runs on: a GPU (nvcc), or this
// CPU (g++, through host/executor.h). Kernel bodies are the same for both.
//
// A kernel is `KERNEL(name, Arguments, threads_max) { ... args ... }`: one struct of arguments, C
// linkage; kernel_list.h has a row for it. Rules: shared memory through SHARED or DYNAMIC_SHARED
// only; no return before a barrier or a shuffle that others wait in; shuffles order no memory
// (__syncwarp() does); cross-block data through dev:: functions; every spin calls
// dev::spin_pause(); intrinsics that host/intrinsics.h lacks get a function in `dev` with a host
// twin first. Multiplications and additions are fused nowhere (nvcc -fmad=false): a sum has the
// same bits in every kernel that adds in the same order, and on the CPU.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_fp16.h>

#define KERNEL(name, Arguments, threads_max)                \
  extern "C" __global__ void __launch_bounds__(threads_max) \
      name(const __grid_constant__ Arguments args)
#define DEVICE __device__ __forceinline__
#define SHARED(type, name, dimensions) __shared__ type name dimensions
#define DYNAMIC_SHARED(name)                                   \
  extern __shared__ __align__(16) unsigned char dynamic_raw[]; \
  unsigned char* const name = dynamic_raw

#else

#include "kernels/cuda/host/intrinsics.h"

#define KERNEL(name, Arguments, threads_max) extern "C" void name(const Arguments& args)
#define DEVICE inline
#define SHARED(type, name, dimensions)                \
  using name##_shared = type dimensions;              \
  name##_shared& name = *static_cast<name##_shared*>( \
      ::plimsoll::host_cuda::static_shared(sizeof(name##_shared), __FILE__, __LINE__))
#define DYNAMIC_SHARED(name)  \
  unsigned char* const name = \
      reinterpret_cast<unsigned char*>(::plimsoll::host_cuda::dynamic_shared())

#endif

namespace plimsoll::dev {

constexpr unsigned kAllLanes = 0xffffffffU;

DEVICE float half_to_float(std::uint16_t bits) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(bits));
#else
  return plimsoll::half_to_float(bits);
#endif
}

DEVICE std::uint16_t float_to_half(float value) {
#if defined(__CUDACC__)
  return __half_as_ushort(__float2half_rn(value));
#else
  return plimsoll::float_to_half(value);
#endif
}

DEVICE float bfloat16_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16U);
}

// Of memory that other devices and the host see: what was written before a release by whoever
// stored the value is seen after the acquire that loads it.
DEVICE std::uint64_t load_acquire(const std::uint64_t* from) {
#if defined(__CUDA_ARCH__)
  std::uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
#elif !defined(__CUDACC__)
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#else
  return *from;
#endif
}

DEVICE void store_release(std::uint64_t* to, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
#elif !defined(__CUDACC__)
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
#else
  *to = value;
#endif
}

// One word, whole; it orders nothing.
DEVICE std::uint32_t load_relaxed(const std::uint32_t* from) {
#if defined(__CUDA_ARCH__)
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
#elif !defined(__CUDACC__)
  return __atomic_load_n(from, __ATOMIC_RELAXED);
#else
  return *from;
#endif
}

DEVICE void store_relaxed(std::uint32_t* to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
#elif !defined(__CUDACC__)
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
#else
  *to = value;
#endif
}

// Between blocks of this device: what the others did before theirs is seen after it.
DEVICE std::uint32_t add_in_turn(std::uint32_t* to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
#elif !defined(__CUDACC__)
  return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
#else
  return *to + value;
#endif
}

// In a loop that waits for a peer.
DEVICE void spin_pause() {
#if !defined(__CUDACC__)
  host_cuda::spin_pause({__FILE__, __LINE__, "spin"});
#endif
}

// Of a clock that goes on.
DEVICE std::uint64_t nanoseconds() {
#if defined(__CUDA_ARCH__)
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
#elif !defined(__CUDACC__)
  return host_cuda::nanoseconds();
#else
  return 0;
#endif
}

// The sum over the warp, on every lane; always in the same order.
template <typename T>
DEVICE T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

DEVICE float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// d[16, 8] += a[16, 32] · b[32, 8] in int8 and int32; lane 4 g + t holds, as words of four columns
// each: a rows g, g + 8 at columns 4 t, then both at 16 + 4 t; b column g at rows 4 t, then 16 + 4
// t; d row g at columns 2 t, 2 t + 1, then row g + 8.
DEVICE void mma_s8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
  host_cuda::mma_s8(d, a, b);
#endif
}

// d[16, 8] += a[16, 16] · b[16, 8], as mma_s8 with half the columns: a rows g, g + 8 at columns 4
// t.
DEVICE void mma_s8_half(int (&d)[4], const unsigned (&a)[2], unsigned b) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
#elif !defined(__CUDACC__)
  host_cuda::mma_s8_half(d, a, b);
#endif
}

}  // namespace plimsoll::dev
