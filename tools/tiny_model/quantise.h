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

// The type itself, or, where a row is no multiple of a K-quant's 256 columns, the same stand-in as
// in llama.cpp: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K.
DType type_or_stand_in(DType type, std::int64_t cols);

}  // namespace plimsoll
