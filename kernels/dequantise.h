// Dequantise: stored blocks of any type to floats; the plain loops that everything is checked by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shared/model/dtype.h"

namespace plimsoll {

// REQUIRES: `elements` is a multiple of the type's block length, and `blocks` holds
// stored_bytes(dtype, elements) bytes (any alignment).
void dequantise(DType dtype, const std::byte* blocks, std::int64_t elements, float* out);

}  // namespace plimsoll
