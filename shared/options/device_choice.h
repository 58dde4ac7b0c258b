// DeviceChoice: what `--devices` says: the kind of device that ranks run on, and what it names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

// cuda_host: the CUDA backend with its kernels run by the CPU (docs/gpu.md), planned as CPU ranks.
enum class DeviceKind { automatic, cpu, cuda, cuda_host, simulated };
const char* device_kind_name(DeviceKind kind);  // "auto", "cpu", "cuda", "cuda:host", …

struct DeviceChoice {
  DeviceKind kind = DeviceKind::automatic;
  // Of simulated devices, "simulated:94GiB,96GiB": one a device, and again from the first where
  // there are more ranks. Empty: those of the machine description.
  std::vector<Bytes> sizes;
  // Of GPUs: places in the driver's order, from 0, or UUIDs, a rank each. Empty: all of them.
  std::vector<std::string> gpus;

  Bytes size_of(std::size_t device) const {
    return sizes.empty() ? 0 : sizes[device % sizes.size()];
  }
};

// "auto", "cpu", "cuda", "cuda:host", "simulated", "simulated:96GiB", "simulated:94GiB,96GiB";
// "0,1", "cuda:0,1" and "GPU-5fd3…,MIG-…" are GPUs.
// Errors: Code::invalid, saying what would be right.
Result<DeviceChoice> parse_device_choice(std::string_view text);

}  // namespace plimsoll
