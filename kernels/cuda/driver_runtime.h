// DriverRuntime: a DeviceRuntime on an NVIDIA GPU, through the driver's library.
//
// Uses the GPU's primary context, one stream, plain allocations and, for what is reserved, mapped
// ones. The thread that makes it is the one that calls. Each error names the GPU, what was
// attempted, and the driver's name and text for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/modules.h"

namespace plimsoll::cuda {

struct DriverRuntimeOptions {
  std::string library = "libcuda.so.1";  // LD_LIBRARY_PATH says where from
  std::string uuid = {};                 // "GPU-5fd3…"; empty: the driver's first
  std::vector<CudaModule> modules = {};  // that have every kernel
  std::string architectures = {};        // that they were compiled for, for error messages
};

// Errors: the driver's; no such GPU; a build without kernels for it (invalid).
Result<std::unique_ptr<DeviceRuntime>> make_driver_runtime(const DriverRuntimeOptions& options);

}  // namespace plimsoll::cuda
