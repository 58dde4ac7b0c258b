#include "worker/kv/device_kv.h"

#include <algorithm>

#include "shared/base/check.h"

namespace plimsoll {

Result<DeviceKv> DeviceKv::reserve(DeviceMemory& device, Bytes block_bytes, Blocks blocks_max) {
  const std::span<std::byte> range =
      TRY(device.reserve((blocks_max + 1) * block_bytes, "the KV cache"));
  DeviceKv kv(device, range, block_bytes);
  kv.null_bytes_ = std::min(round_up(block_bytes, device.granule()), std::ssize(range));
  TRY(device.map(range.first(static_cast<std::size_t>(kv.null_bytes_)),
                 "the KV block that batches are filled up with"));
  return kv;
}

Status DeviceKv::map(Blocks blocks) {
  const Bytes all = round_up((blocks + 1) * block_bytes_, device_->granule());
  CHECK(all <= std::ssize(range_));
  return device_->map(range_.subspan(static_cast<std::size_t>(null_bytes_),
                                     static_cast<std::size_t>(all - null_bytes_)),
                      "the KV cache");
}

}  // namespace plimsoll
