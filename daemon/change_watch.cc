#include "daemon/change_watch.h"

namespace plimsoll {

ChangeWatch::Verdict ChangeWatch::look(const Seen& seen, TimePoint now) {
  if (now >= next_look_) next_look_ = since_ + kWatchTime + kGraceTime;
  if (seen.replica_fault_at && *seen.replica_fault_at >= since_) return Verdict::take_back;
  if (now >= since_ + kWatchTime && seen.is_serving && !seen.is_dying) return Verdict::commit;
  return now >= since_ + kWatchTime + kGraceTime ? Verdict::take_back : Verdict::wait;
}

}  // namespace plimsoll
