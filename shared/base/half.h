// Half: IEEE half precision and bfloat16 to float and back, in plain integer arithmetic.
//
// Not inline: an inline copy compiled with wider instructions could be the one that the linker
// keeps. Fast paths use their own instructions instead.
#pragma once

#include <cstdint>

namespace plimsoll {

float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);  // nearest, ties to even; too large becomes infinity
float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_bfloat16(float value);  // nearest, ties to even

}  // namespace plimsoll
