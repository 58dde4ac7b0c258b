// Pack: stored weights into the layout of weight_formats.cuh.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {

WeightFormat weight_format(DType dtype);
bool is_quantised(WeightFormat format);

// Bytes of one block of 16 rows. REQUIRES: a quantised type.
Bytes packed_block_bytes(DType dtype);

// REQUIRES: check_pack(slice, destination) passed; `destination` is zeroed host memory.
void pack_weights(const StoredSlice& slice, std::span<std::byte> destination);

}  // namespace plimsoll::cuda
