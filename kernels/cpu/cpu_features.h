// CpuFeatures: the instruction sets that this CPU has and its operating system lets us use.
#pragma once

#include <string>

#include "kernels/cpu/cpu_backend.h"
#include "shared/base/result.h"

namespace plimsoll {

struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false, avx512vnni = false;
  bool avx512bf16 = false;    // no path needs it: where it is, BF16 weights take it
  bool os_saves_ymm = false;  // XCR0: the operating system keeps the registers over a switch
  bool os_saves_zmm = false;
};

CpuFeatures detect_cpu_features();  // by CPUID and XGETBV
bool supports(const CpuFeatures& features, CpuPath path);
CpuPath best_path(const CpuFeatures& features);
std::string missing_for(const CpuFeatures& features, CpuPath path);  // "AVX2, FMA"; empty: none
Error path_refusal(const CpuFeatures& features, CpuPath path);       // why a path cannot be taken

}  // namespace plimsoll
