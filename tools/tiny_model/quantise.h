// Quantise: floats to stored blocks of any type, with the plainest choice of scales.
//
// Correct rather than clever: a real quantiser searches for better scales, and its files lose less.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "shared/model/dtype.h"

namespace plimsoll {

// REQUIRES: a multiple of the type's block length.
std::vector<std::byte> quantise(DType dtype, std::span<const float> values);

}  // namespace plimsoll
