// TestKernels: kernels that a test defines itself, as grids of the executor.
#pragma once

#include "kernels/cuda/host/executor.h"

namespace plimsoll::testing_kernels {

template <typename>
struct ArgumentOf;
template <typename Arguments>
struct ArgumentOf<void (*)(const Arguments&)> {
  using Type = Arguments;
};

// A launch of a function `void(const Arguments&)`; `arguments` must outlive it.
template <auto kernel>
host_cuda::Grid grid_of(const char* name, host_cuda::Dim3 grid, host_cuda::Dim3 block,
                        const typename ArgumentOf<decltype(kernel)>::Type* arguments) {
  using Arguments = typename ArgumentOf<decltype(kernel)>::Type;
  return {.kernel = name,
          .entry = [](const void* given) { kernel(*static_cast<const Arguments*>(given)); },
          .arguments = arguments,
          .grid = grid,
          .block = block};
}

}  // namespace plimsoll::testing_kernels
