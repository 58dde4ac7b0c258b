// DeviceWatch: a thread that asks the NVIDIA driver how the devices of workers are, since a driver
// whose device is broken may take long.
//
// One thread owns it. Without a driver, or before the first watched device, there is no thread; and
// while nothing is watched the driver is let go of, since it resets no GPU that a process holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared/base/unique_fd.h"
#include "shared/machine/device_health.h"

namespace plimsoll {

class DeviceWatch {
 public:
  // `library`: of NVML; it outlives the watch.
  explicit DeviceWatch(const char* library = "libnvidia-ml.so.1");
  // Another driver, for tests; it outlives the watch.
  explicit DeviceWatch(const NvmlApi& api);
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;
  ~DeviceWatch();

  // From here on, by its UUID; without one (the CPU), nothing. Each only once.
  void watch(const std::string& uuid);
  // None but these any more, of those that are watched.
  void keep(const std::vector<std::string>& uuids);
  // A worker has died on one: what the driver does not tell by itself is asked for.
  void examine();
  // Readable when there is something to take. -1: nothing is watched.
  int fd() const;
  std::vector<DeviceFault> take();

 private:
  struct Shared;
  class Turns;
  static void run(Shared& shared);

  const char* library_ = nullptr;
  const NvmlApi* api_ = nullptr;
  std::unique_ptr<Shared> shared_;  // with the thread
};

}  // namespace plimsoll
