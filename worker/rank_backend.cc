#include "worker/rank_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/driver_runtime.h"
#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/modules.h"
#include "shared/machine/nvml.h"

namespace plimsoll {
namespace {

// Any but 0 and 1 is a random order of CUDA threads.
constexpr std::uint64_t kExecutorSeed = 2;
// Kernels that wait for other ranks give up by themselves, before this.
constexpr Duration kSpinDeadline = seconds(120);

// As NVML says it, which makes no context. Of others that are broken it need not know.
struct Seen {
  std::optional<Bytes> free;
  DeviceLink link = DeviceLink::pcie;
};

Seen look_without_context(const std::string& uuid) {
  Seen seen;
  const Result<NvmlDevices> found = query_nvml(0, LostGpus::left_out);
  if (!found) return seen;
  seen.link = found->link;
  const auto device = std::ranges::find(found->devices, uuid, &Device::uuid);
  if (device != found->devices.end()) seen.free = device->memory_free;
  return seen;
}

Result<RankBackend> make_gpu_backend(const std::string& uuid) {
  const Seen before = look_without_context(uuid);
  auto runtime =
      TRY(cuda::make_driver_runtime({.uuid = uuid,
                                     .modules = cuda::cuda_modules(),
                                     .architectures = std::string(cuda::cuda_architectures())}));
  const DeviceMemory::State now = TRY(runtime->memory());
  RankBackend made{.backend = nullptr,
                   .context = std::max<Bytes>(0, before.free.value_or(now.total) - now.free),
                   .runtime = runtime.get(),
                   .link = before.link};
  made.backend = make_cuda_backend(std::move(runtime));
  return made;
}

}  // namespace

Result<RankBackend> make_rank_backend(const LaunchedRank& launched) {
  if (launched.plan.device >= 0) return make_gpu_backend(launched.plan.device_uuid);
  if (launched.on_host_cuda) {
    auto runtime = cuda::make_host_runtime(
        {.memory = launched.plan.budget, .seed = kExecutorSeed, .spin_deadline = kSpinDeadline});
    RankBackend made{.backend = nullptr, .runtime = runtime.get()};
    made.backend = make_cuda_backend(std::move(runtime));
    return made;
  }
  return RankBackend{.backend = TRY(make_cpu_backend(launched.backend))};
}

}  // namespace plimsoll
