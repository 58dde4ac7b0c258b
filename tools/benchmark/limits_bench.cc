// limits_bench: what this machine can do at most: reading memory and multiplying, by threads.
//
// Usage: limits_bench [THREADS]. One line of JSON: bytes per second of reading 256 MiB, and
// multiply-adds per second of f32 and of int8, each with the widest instructions that there are.
// The best of several passes: a limit is what nothing was in the way of. Each thread has its CPU.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "shared/base/units.h"

namespace plimsoll {
namespace {

constexpr std::size_t kReadBytes = 256 * kMiB;  // several times a third-level cache
constexpr int kPasses = 5;
constexpr int kRounds = 2'000'000;  // about 5 ms at 8 instructions a round
constexpr int kThreadsMax = 256;

// In pages of 2 MiB where the kernel has them, as packed weights are.
class Memory {
 public:
  Memory() : bytes_(static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, kReadBytes))) {
    if (bytes_ == nullptr) return;
    (void)::madvise(bytes_, kReadBytes, MADV_HUGEPAGE);
    std::memset(bytes_, 1, kReadBytes);
  }
  ~Memory() { std::free(bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const std::byte* bytes() const { return bytes_; }

 private:
  std::byte* bytes_;
};

void run_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);  // where it may not, the kernel spreads threads
}

// The loops are in assembly: a compiler would take out of the loop what does not change in it.
// Returns multiply-adds.
double int8_avx2() {
  for (int i = 0; i < kRounds; ++i) {
    __asm__ volatile(
        "vpmaddubsw %%ymm13, %%ymm14, %%ymm0\n\t vpmaddwd %%ymm0, %%ymm15, %%ymm0\n\t"
        "vpaddd %%ymm0, %%ymm8, %%ymm8\n\t"
        "vpmaddubsw %%ymm13, %%ymm14, %%ymm1\n\t vpmaddwd %%ymm1, %%ymm15, %%ymm1\n\t"
        "vpaddd %%ymm1, %%ymm9, %%ymm9\n\t"
        "vpmaddubsw %%ymm13, %%ymm14, %%ymm2\n\t vpmaddwd %%ymm2, %%ymm15, %%ymm2\n\t"
        "vpaddd %%ymm2, %%ymm10, %%ymm10\n\t"
        "vpmaddubsw %%ymm13, %%ymm14, %%ymm3\n\t vpmaddwd %%ymm3, %%ymm15, %%ymm3\n\t"
        "vpaddd %%ymm3, %%ymm11, %%ymm11\n\t" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm8", "xmm9", "xmm10", "xmm11");
  }
  return 4.0 * 32 * kRounds;
}

[[gnu::target("avx512f,avx512vnni")]] double int8_avx512() {
  for (int i = 0; i < kRounds; ++i) {
    __asm__ volatile(
        "vpdpbusd %%zmm14, %%zmm15, %%zmm0\n\t vpdpbusd %%zmm14, %%zmm15, %%zmm1\n\t"
        "vpdpbusd %%zmm14, %%zmm15, %%zmm2\n\t vpdpbusd %%zmm14, %%zmm15, %%zmm3\n\t"
        "vpdpbusd %%zmm14, %%zmm15, %%zmm4\n\t vpdpbusd %%zmm14, %%zmm15, %%zmm5\n\t"
        "vpdpbusd %%zmm14, %%zmm15, %%zmm6\n\t vpdpbusd %%zmm14, %%zmm15, %%zmm7\n\t"
        "vpdpbusd %%zmm14, %%zmm15, %%zmm8\n\t vpdpbusd %%zmm14, %%zmm15, %%zmm9\n\t" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9");
  }
  return 10.0 * 64 * kRounds;
}

double f32_avx2() {
  for (int i = 0; i < kRounds; ++i) {
    __asm__ volatile(
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm0\n\t vfmadd231ps %%ymm14, %%ymm15, %%ymm1\n\t"
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm2\n\t vfmadd231ps %%ymm14, %%ymm15, %%ymm3\n\t"
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm4\n\t vfmadd231ps %%ymm14, %%ymm15, %%ymm5\n\t"
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm6\n\t vfmadd231ps %%ymm14, %%ymm15, %%ymm7\n\t"
        "vfmadd231ps %%ymm14, %%ymm15, %%ymm8\n\t vfmadd231ps %%ymm14, %%ymm15, %%ymm9\n\t" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9");
  }
  return 10.0 * 8 * kRounds;
}

[[gnu::target("avx512f")]] double f32_avx512() {
  for (int i = 0; i < kRounds; ++i) {
    __asm__ volatile(
        "vfmadd231ps %%zmm14, %%zmm15, %%zmm0\n\t vfmadd231ps %%zmm14, %%zmm15, %%zmm1\n\t"
        "vfmadd231ps %%zmm14, %%zmm15, %%zmm2\n\t vfmadd231ps %%zmm14, %%zmm15, %%zmm3\n\t"
        "vfmadd231ps %%zmm14, %%zmm15, %%zmm4\n\t vfmadd231ps %%zmm14, %%zmm15, %%zmm5\n\t"
        "vfmadd231ps %%zmm14, %%zmm15, %%zmm6\n\t vfmadd231ps %%zmm14, %%zmm15, %%zmm7\n\t"
        "vfmadd231ps %%zmm14, %%zmm15, %%zmm8\n\t vfmadd231ps %%zmm14, %%zmm15, %%zmm9\n\t" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9");
  }
  return 10.0 * 16 * kRounds;
}

[[gnu::noinline]] double read_all(const std::byte* bytes, int thread, int threads) {
  const std::size_t share = kReadBytes / static_cast<std::size_t>(threads) / 128 * 128;
  const auto* p =
      reinterpret_cast<const __m128i*>(bytes + share * static_cast<std::size_t>(thread));
  __m128i sums[8] = {};
  for (std::size_t i = 0; i < share / sizeof(__m128i); i += 8) {
    for (std::size_t j = 0; j < 8; ++j) {
      sums[j] = _mm_xor_si128(sums[j], _mm_load_si128(p + i + j));
    }
  }
  for (std::size_t j = 1; j < 8; ++j) sums[0] = _mm_xor_si128(sums[0], sums[j]);
  __asm__ volatile("" : : "x"(sums[0]));
  return static_cast<double>(share);
}

// Amount per second of all threads together: they begin at the same time, and the last one ends it.
template <typename Work>
double best_rate(int threads, const Work& work) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<int> waiting = threads;
    std::vector<double> amounts(static_cast<std::size_t>(threads));
    std::vector<TimePoint> begins(amounts.size()), ends(amounts.size());
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        run_on(t);
        waiting.fetch_sub(1);
        while (waiting.load() > 0) _mm_pause();
        const auto at = static_cast<std::size_t>(t);
        begins[at] = now();
        amounts[at] = work(t);
        ends[at] = now();
      });
    }
    for (std::thread& one : all) one.join();
    double amount = 0;
    for (const double one : amounts) amount += one;
    const Duration took = *std::max_element(ends.begin(), ends.end()) -
                          *std::min_element(begins.begin(), begins.end());
    best = std::max(best, amount / to_seconds(took));
  }
  return best;
}

int run(int threads) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    std::fputs("limits_bench: this CPU has no AVX2, which the limits are of\n", stderr);
    return 1;
  }
  const Memory memory;
  if (memory.bytes() == nullptr) {
    std::fputs("limits_bench: there are no 256 MiB of memory left\n", stderr);
    return 1;
  }
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  const bool has_vnni = wide && __builtin_cpu_supports("avx512vnni") != 0;
  Json result = Json::object();
  result.set("threads", std::int64_t{threads});
  result.set("read_bytes_per_second",
             best_rate(threads, [&](int t) { return read_all(memory.bytes(), t, threads); }));
  result.set("f32_products_per_second",
             best_rate(threads, [&](int) { return wide ? f32_avx512() : f32_avx2(); }));
  result.set("int8_products_per_second",
             best_rate(threads, [&](int) { return has_vnni ? int8_avx512() : int8_avx2(); }));
  std::printf("%s\n", dump_json(result).c_str());
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 || threads < 1 || threads > plimsoll::kThreadsMax) {
    std::fputs("usage: limits_bench [THREADS]; default 1\n", stderr);
    return 2;
  }
  return plimsoll::run(threads);
}
