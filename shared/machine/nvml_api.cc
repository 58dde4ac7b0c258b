#include "shared/machine/nvml_api.h"

#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace plimsoll {
namespace {

template <typename Function>
void bind(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
}

}  // namespace

Result<NvmlLibrary> NvmlLibrary::open(const char* file_name) {
  NvmlLibrary library;
  library.handle_ = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* why = dlerror();
    return not_found(fmt::format("open {}: {}", file_name, why == nullptr ? "not found" : why));
  }
  NvmlApi& api = library.api_;
  void* handle = library.handle_;
  bind(handle, "nvmlInit_v2", api.init);
  bind(handle, "nvmlShutdown", api.shutdown);
  bind(handle, "nvmlErrorString", api.error_text);
  bind(handle, "nvmlDeviceGetCount_v2", api.device_count);
  bind(handle, "nvmlDeviceGetHandleByIndex_v2", api.device_at);
  bind(handle, "nvmlDeviceGetName", api.name);
  bind(handle, "nvmlDeviceGetUUID", api.uuid);
  bind(handle, "nvmlDeviceGetMemoryInfo", api.memory);
  bind(handle, "nvmlDeviceGetBAR1MemoryInfo", api.bar1);
  bind(handle, "nvmlDeviceGetCudaComputeCapability", api.capability);
  bind(handle, "nvmlDeviceGetNumGpuCores", api.cores);
  bind(handle, "nvmlDeviceGetComputeRunningProcesses_v3", api.processes);
  if (api.processes == nullptr) {  // the same layout, since driver 450
    bind(handle, "nvmlDeviceGetComputeRunningProcesses_v2", api.processes);
  }
  bind(handle, "nvmlDeviceGetPciInfo_v3", api.pci);
  bind(handle, "nvmlDeviceGetNvLinkState", api.link_state);
  bind(handle, "nvmlDeviceGetMemoryBusWidth", api.bus_bits);
  bind(handle, "nvmlDeviceGetMaxClockInfo", api.clock_max);
  bind(handle, "nvmlDeviceGetMaxPcieLinkGeneration", api.pcie_generation);
  bind(handle, "nvmlDeviceGetMaxPcieLinkWidth", api.pcie_lanes);
  bind(handle, "nvmlDeviceGetP2PStatus", api.peer_status);
  bind(handle, "nvmlDeviceGetTopologyCommonAncestor", api.ancestor);
  bind(handle, "nvmlDeviceGetMigMode", api.mig_mode);
  bind(handle, "nvmlDeviceGetMaxMigDeviceCount", api.mig_count_max);
  bind(handle, "nvmlDeviceGetMigDeviceHandleByIndex", api.mig_at);
  bind(handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", api.mig_parent);
  bind(handle, "nvmlDeviceGetHandleByUUID", api.device_by_uuid);
  bind(handle, "nvmlEventSetCreate", api.event_set_create);
  bind(handle, "nvmlEventSetFree", api.event_set_free);
  bind(handle, "nvmlDeviceRegisterEvents", api.event_register);
  bind(handle, "nvmlDeviceGetSupportedEventTypes", api.event_supported);
  bind(handle, "nvmlEventSetWait_v2", api.event_wait);
  bind(handle, "nvmlDeviceGetTotalEccErrors", api.ecc_errors);
  bind(handle, "nvmlDeviceGetRemappedRows", api.remapped_rows);
  bind(handle, "nvmlDeviceGetRetiredPagesPendingStatus", api.retired_pending);
  const bool usable = api.init != nullptr && api.shutdown != nullptr && api.error_text != nullptr &&
                      api.device_count != nullptr && api.device_at != nullptr &&
                      api.name != nullptr && api.uuid != nullptr && api.memory != nullptr;
  if (usable) return library;
  return unavailable(
      fmt::format("open {}: it lacks functions that every driver since 450 has", file_name));
}

NvmlLibrary::NvmlLibrary(NvmlLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), api_(other.api_) {}

NvmlLibrary::~NvmlLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace plimsoll
