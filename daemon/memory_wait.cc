#include "daemon/memory_wait.h"

namespace plimsoll {

std::optional<TimePoint> MemoryWait::next_look(Bytes available, TimePoint now) {
  if (!begun_ || available >= available_ + kMemoryGrowth) {
    released_at_ = now;
    available_ = available;
  }
  if (!begun_) begun_ = now;
  if (now - released_at_ >= kMemoryQuiet || now - *begun_ >= kMemoryLongest) return std::nullopt;
  return now + kMemoryPoll;
}

}  // namespace plimsoll
