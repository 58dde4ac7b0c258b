// MemoryWait: how long a launch waits for memory that others are giving back. Pure.
#pragma once

#include <optional>

#include "shared/base/clock.h"
#include "shared/base/units.h"

namespace plimsoll {

constexpr Duration kMemoryPoll = milliseconds(250);
constexpr Duration kMemoryQuiet = seconds(3);     // nothing is being released any more
constexpr Duration kMemoryLongest = seconds(60);  // even while something is
constexpr Bytes kMemoryGrowth = 16 * kMiB;        // that counts as being released

class MemoryWait {
 public:
  // With so much available it did not fit: when to look again; nullopt: waiting is over.
  std::optional<TimePoint> next_look(Bytes available, TimePoint now);
  bool has_begun() const { return begun_.has_value(); }

 private:
  std::optional<TimePoint> begun_;
  TimePoint released_at_;  // when there was last more than before
  Bytes available_ = 0;
};

}  // namespace plimsoll
