// HeadLimits: shapes of attention heads that the kernels can run, for all who must refuse others.
//
// Constants alone: the model's reader refuses a file by them, the kernels size their tiles by them.
#pragma once

#include <cstdint>

namespace plimsoll {

constexpr std::int64_t kHeadDimMultiple = 8;  // floats of the narrowest vector
constexpr std::int64_t kHeadDimMax = 256;
constexpr std::int64_t kHeadsPerKvHeadMax = 48;  // rows of an attention tile

}  // namespace plimsoll
