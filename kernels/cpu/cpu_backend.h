// CpuBackend: the operations as packed integer kernels on a resident team of threads.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace plimsoll {

enum class CpuPath { scalar, avx2, avx512 };  // avx512 is F, BW, VL, DQ and VNNI

enum class Activations { int8, f32 };

struct CpuBackendOptions {
  int threads = 1;              // including the caller
  std::vector<int> cpus;        // one a thread to pin to; empty: not pinned
  bool spin = true;             // wait spinning for a while before sleeping
  std::optional<CpuPath> path;  // unset: the best that CPUID and XGETBV allow
  Activations activations = Activations::int8;
};

const char* cpu_path_name(CpuPath path);  // "scalar", "avx2", "avx512-vnni"
std::optional<CpuPath> parse_cpu_path(std::string_view name);
CpuPath best_cpu_path();
bool cpu_path_runs_here(CpuPath path);

// Errors: a path that this machine cannot run.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace plimsoll
