#include "kernels/cpu/cpu_features.h"

#include <cstdint>

#include <cpuid.h>

namespace plimsoll {
namespace {

constexpr std::uint64_t kXcr0Ymm = 0x06;  // SSE and AVX state
constexpr std::uint64_t kXcr0Zmm = 0xe6;  // and opmask, upper halves of zmm0-15, zmm16-31

std::uint64_t read_xcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

bool bit(std::uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  features.fma = bit(c, 12);
  features.f16c = bit(c, 29);
  if (bit(c, 27)) {  // OSXSAVE: XGETBV exists
    const std::uint64_t xcr0 = read_xcr0();
    features.os_saves_ymm = (xcr0 & kXcr0Ymm) == kXcr0Ymm;
    features.os_saves_zmm = (xcr0 & kXcr0Zmm) == kXcr0Zmm;
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  features.avx2 = bit(b, 5);
  features.avx512f = bit(b, 16);
  features.avx512dq = bit(b, 17);
  features.avx512bw = bit(b, 30);
  features.avx512vl = bit(b, 31);
  features.avx512vnni = bit(c, 11);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512bf16 = bit(a, 5);
  return features;
}

std::string missing_for(const CpuFeatures& features, CpuPath path) {
  std::string missing;
  const auto need = [&](bool present, const char* name) {
    if (present) return;
    if (!missing.empty()) missing += ", ";
    missing += name;
  };
  if (path == CpuPath::scalar) return missing;
  need(features.avx2, "AVX2");
  need(features.fma, "FMA");
  need(features.f16c, "F16C");
  need(features.os_saves_ymm, "an operating system that saves YMM registers");
  if (path == CpuPath::avx2) return missing;
  need(features.avx512f, "AVX-512F");
  need(features.avx512bw, "AVX-512BW");
  need(features.avx512vl, "AVX-512VL");
  need(features.avx512dq, "AVX-512DQ");
  need(features.avx512vnni, "AVX-512 VNNI");
  need(features.os_saves_zmm, "an operating system that saves ZMM registers");
  return missing;
}

bool supports(const CpuFeatures& features, CpuPath path) {
  return missing_for(features, path).empty();
}

Error path_refusal(const CpuFeatures& features, CpuPath path) {
  return invalid(std::string("make the CPU backend: this machine cannot run the path ") +
                 cpu_path_name(path) + ", it lacks " + missing_for(features, path) + "; " +
                 cpu_path_name(best_path(features)) + " is the best that it runs");
}

CpuPath best_path(const CpuFeatures& features) {
  if (supports(features, CpuPath::avx512)) return CpuPath::avx512;
  if (supports(features, CpuPath::avx2)) return CpuPath::avx2;
  return CpuPath::scalar;
}

}  // namespace plimsoll
