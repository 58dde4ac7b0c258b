// WeightUpload: stored weights into device memory: repacked on the host, piece by piece.
//
// Two pieces take turns: while one is copied the next is packed, so a load needs a few MiB of host
// memory, however large a matrix is.
#pragma once

#include <array>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/device_runtime.h"

namespace plimsoll::cuda {

constexpr Bytes kUploadBytes = 4 * kMiB;  // of a piece

class WeightUpload {
 public:
  // REQUIRES: the runtime outlives it.
  explicit WeightUpload(DeviceRuntime& runtime) : runtime_(runtime) {}

  // REQUIRES: check_pack(slice, destination) passed; `destination` is zeroed device memory. Errors:
  // the runtime's; 16 rows that are longer than a piece (invalid).
  Status pack(const StoredSlice& slice, std::span<std::byte> destination);

 private:
  DeviceRuntime& runtime_;
  std::array<std::span<std::byte>, 2> pieces_;
};

}  // namespace plimsoll::cuda
