// CrashMark: what a rank's crash handler notes in place of an address, where its signal has none.
#pragma once

#include <cstdint>

namespace plimsoll {

// It raised the signal itself: abort(), a failed check.
inline constexpr std::uint64_t kCrashRaised = ~std::uint64_t{0};
// Another process sent it: no fault of the rank's own.
inline constexpr std::uint64_t kCrashSent = ~std::uint64_t{0} - 1;

}  // namespace plimsoll
