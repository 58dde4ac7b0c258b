// Modules: the compiled CUDA kernels that this build carries, in the library kernels_cuda; none
// where it was built without nvcc.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace plimsoll::cuda {

struct CudaModule {
  std::string_view name;              // of its source: "attention"
  std::span<const std::byte> fatbin;  // for cuModuleLoadData
};

std::vector<CudaModule> cuda_modules();
// What they were compiled for, "80 90a 120-virtual"; empty: nothing.
std::string_view cuda_architectures();

}  // namespace plimsoll::cuda
