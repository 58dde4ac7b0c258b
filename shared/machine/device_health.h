// DeviceHealth: which of some GPUs have failed, as the driver says it: by its events, and by what
// it counts. It makes no CUDA context.
//
// Calls into a driver whose GPU is broken may take long: not for a thread that has to go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/machine/nvml_api.h"

namespace plimsoll {

struct DeviceFault {
  std::string uuid;
  std::string what;  // "Xid 79: it has fallen off the bus"
};

// What an Xid error says of the device it is of. Nothing: it is one of the program that used it
// (13, 31, 43, 45, ...), or the device goes on as before.
std::optional<std::string_view> xid_of_device(std::uint64_t xid);

class DeviceHealth {
 public:
  // `api` outlives it. Errors: unavailable: the driver does not answer.
  static Result<DeviceHealth> start(const NvmlApi& api);
  DeviceHealth(DeviceHealth&& other) noexcept;
  DeviceHealth& operator=(DeviceHealth&&) = delete;
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;
  ~DeviceHealth();

  // From here on. What has been counted so far is no fault of now. A GPU or a MIG slice; one that
  // the driver does not know is left out, and one that has failed is looked for anew.
  void watch(const std::string& uuid);
  // Whether the driver tells of faults by itself.
  bool has_events() const { return events_ != nullptr; }
  // What it tells, waiting for it at most so long. Of events that are no faults: nothing.
  std::vector<DeviceFault> wait(milliseconds longest);
  // What can be asked for, as after a worker's death: a GPU that is lost, memory errors that could
  // not be corrected, repairs that wait for a reset.
  std::vector<DeviceFault> examine();

 private:
  struct Watched {
    std::string uuid;
    NvmlHandle handle = nullptr;  // of a slice its GPU
    std::uint64_t ecc_errors = 0;
    bool had_repairs = false;  // that wait for a reset
    bool has_failed = false;
  };
  explicit DeviceHealth(const NvmlApi& api) : api_(&api) {}
  void make_events();
  void listen_to(const Watched& one) const;
  std::uint64_t ecc_errors(NvmlHandle handle) const;
  std::optional<std::string> repairs(NvmlHandle handle) const;

  const NvmlApi* api_;
  NvmlEventSet events_ = nullptr;
  std::vector<Watched> watched_;
};

}  // namespace plimsoll
