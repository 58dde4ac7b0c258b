// LinearBackends: the CPU backends that the tests of `linear` run, on every path that runs here.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {

constexpr BackendLimits kLinearLimits{.tokens_max = 160,
                                      .cols_max = 1536,
                                      .rows_max = 256,
                                      .context_max = 64,
                                      .heads_max = 2,
                                      .head_dim = 16};
struct TestBackend {
  explicit TestBackend(const CpuBackendOptions& options)
      : backend(std::move(*make_cpu_backend(options))),
        workspace(backend->workspace_bytes(kLinearLimits)) {
    EXPECT_TRUE(backend->set_workspace(kLinearLimits, workspace.span()));
  }
  std::unique_ptr<Backend> backend;
  AlignedBytes workspace;
};

inline TestBackend backend_of(CpuPath path, Activations activations, int threads = 1) {
  return TestBackend(CpuBackendOptions{
      .threads = threads, .cpus = {}, .spin = false, .path = path, .activations = activations});
}

inline std::vector<CpuPath> paths_that_run_here() {
  std::vector<CpuPath> paths;
  for (const CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    if (cpu_path_runs_here(path)) paths.push_back(path);
  }
  return paths;
}

using LinearCase = std::tuple<CpuPath, DType>;

inline std::string linear_case_name(const testing::TestParamInfo<LinearCase>& info) {
  std::string name = std::string(cpu_path_name(std::get<0>(info.param))) + "_" +
                     std::string(dtype_info(std::get<1>(info.param)).name);
  std::erase(name, '-');
  return name;
}

}  // namespace plimsoll
