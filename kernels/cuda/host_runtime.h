// HostRuntime: a DeviceRuntime without a device: kernels run on the CPU, through the executor.
//
// Enqueued work is kept and runs at synchronize(), so that whoever reuses host memory too early is
// found out; kernels are the same sources, device memory is memory. It is for tests: a thread of a
// kernel costs some 20 ns, a barrier or a shuffle 40 ns a thread.
#pragma once

#include <memory>

#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/host/executor.h"

namespace plimsoll::cuda {

struct HostRuntimeOptions {
  Bytes memory = 0;        // that allocate() gives in all
  std::uint64_t seed = 0;  // of the order of threads and blocks
  // Where threads do nothing but spin; longer than kernels that wait for other processes do.
  Duration spin_deadline = seconds(5);
};

std::unique_ptr<DeviceRuntime> make_host_runtime(const HostRuntimeOptions& options);

// One launch on an executor of the caller's.
host_cuda::Grid host_grid(Kernel kernel, const LaunchShape& shape, const void* arguments);

}  // namespace plimsoll::cuda
