// Fraction: a share of memory in millionths, so that its arithmetic is exact.
//
// 0.88 has no exact double, and a plan's bytes must not depend on how one was rounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

using Millionths = std::int64_t;
constexpr Millionths kWhole = 1'000'000;
// Fractions that we propose are multiples of this, as people write them.
constexpr Millionths kFractionStep = 1'000;

// Rounded down, exact for all bytes.
constexpr Bytes share_of_bytes(Bytes bytes, Millionths fraction) {
  return bytes / kWhole * fraction + bytes % kWhole * fraction / kWhole;
}
constexpr Bytes share_of_bytes_up(Bytes bytes, Millionths fraction) {
  return bytes - share_of_bytes(bytes, kWhole - fraction);
}

// The part that `bytes` are of `of`, rounded up to whole steps. REQUIRES: of > 0.
constexpr Millionths fraction_of(Bytes bytes, Bytes of) {
  const double exact = static_cast<double>(bytes) / static_cast<double>(of) * kWhole;
  auto fraction = static_cast<Millionths>(exact) / kFractionStep * kFractionStep;
  while (share_of_bytes(of, fraction) < bytes) fraction += kFractionStep;
  return fraction;
}

std::string format_fraction(Millionths fraction);  // "0.880": at least three digits
// "0.88"; Code::invalid for what is no decimal number or has more than six digits after the point.
Result<Millionths> parse_fraction(std::string_view text);

}  // namespace plimsoll
