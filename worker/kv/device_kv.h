// DeviceKv: the KV cache's memory on a device: addresses for all that it may ever be, memory behind
// them in two steps.
//
// First the null block alone, on which the rank warms up and records its steps; when everything
// else is measured, the blocks that there is room for. Addresses stay, so what was recorded does.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

class DeviceKv {
 public:
  // Errors: the device's.
  static Result<DeviceKv> reserve(DeviceMemory& device, Bytes block_bytes, Blocks blocks_max);

  // Once. REQUIRES: at most blocks_max.
  Status map(Blocks blocks);

  std::byte* data() const { return range_.data() + block_bytes_; }  // of block 0
  // Memory that is there before map(): the null block, in whole granules.
  Bytes null_bytes() const { return null_bytes_; }

 private:
  DeviceKv(DeviceMemory& device, std::span<std::byte> range, Bytes block_bytes)
      : device_(&device), range_(range), block_bytes_(block_bytes) {}

  DeviceMemory* device_;
  std::span<std::byte> range_;
  Bytes block_bytes_;
  Bytes null_bytes_ = 0;
};

}  // namespace plimsoll
