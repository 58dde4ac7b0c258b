// Nvml: the NVIDIA GPUs of this machine, without a CUDA context.
#pragma once

#include <filesystem>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/machine/nvml_api.h"

namespace plimsoll {

struct NvmlDevices {
  // In the driver's order; a GPU that is cut into MIG slices is its slices, by their own UUID.
  // One that is lost has no memory, and no UUID.
  std::vector<Device> devices;
  DeviceLink link = DeviceLink::pcie;  // nvlink: every GPU has an active link
  PeerLinks peers;                     // without what only a measurement tells
};

// GPUs that their driver has lost, or that need a reset, are an error where they are chosen
// (unavailable), or are left out; and then so are those of which it does not say what is needed.
enum class LostGpus { refused, left_out };

// A machine without the library has no GPUs, which is no error. `host_available` is what a GPU
// that shares the host's memory has free. Errors: Code::unavailable: the driver answers, but not
// this (permissions, a lost GPU): what is unknown is never taken as zero.
Result<NvmlDevices> query_nvml(Bytes host_available, LostGpus lost = LostGpus::refused);

// The same by any table of functions; `root` stands before /proc and /sys.
Result<NvmlDevices> read_nvml(const NvmlApi& api, Bytes host_available,
                              const std::filesystem::path& root = "/",
                              LostGpus lost = LostGpus::refused);

}  // namespace plimsoll
