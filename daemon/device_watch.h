// DeviceWatch: a thread that asks the NVIDIA driver how the devices of workers are, since a driver
// whose device is broken may take long. What plans need to know the daemon's own thread asks.
//
// One thread owns it. Without a driver, or without a watched device, there is no thread.
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
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;
  ~DeviceWatch();

  // From here on, by its UUID; without one (the CPU), nothing. Each only once.
  void watch(const std::string& uuid);
  // A worker has died on one: what the driver does not tell by itself is asked for.
  void examine();
  // Readable when there is something to take. -1: nothing is watched.
  int fd() const;
  std::vector<DeviceFault> take();

 private:
  struct Shared;
  static void run(Shared& shared);

  const char* library_;
  std::unique_ptr<Shared> shared_;  // with the thread
};

}  // namespace plimsoll
