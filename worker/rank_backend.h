// RankBackend: the backend that a launch gives a rank, on its device.
#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cuda/device_runtime.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "worker/worker_setup.h"

namespace plimsoll {

struct RankBackend {
  std::unique_ptr<Backend> backend;
  std::optional<Bytes> context = {};       // of a GPU: what the context and the kernels took of it
  cuda::DeviceRuntime* runtime = nullptr;  // the backend's, where it has CUDA kernels
  DeviceLink link = DeviceLink::pcie;      // to the other GPUs of this machine
};

// Errors: the backend's; of a GPU the driver's.
Result<RankBackend> make_rank_backend(const LaunchedRank& launched);

}  // namespace plimsoll
