// Clock: the one place that asks what time it is. Pure code takes a TimePoint as an argument.
#pragma once

#include <chrono>
#include <cstdint>

namespace plimsoll {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline TimePoint now() { return std::chrono::steady_clock::now(); }

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Seconds since the epoch, for timestamps that leave the machine (OpenAI's `created`, records).
inline std::int64_t unix_seconds() {
  return std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace plimsoll
