// ChangeWatch: whether a new generation that serves has stood its first seconds. Pure.
//
// A replica of it that dies takes it back, and with the cause that is known when its last process
// has been reaped. The router's death says nothing about it: that is waited out, within a bound.
#pragma once

#include <optional>

#include "shared/base/clock.h"

namespace plimsoll {

class ChangeWatch {
 public:
  static constexpr Duration kWatchTime = seconds(2);
  // To serve again, or for what dies to be reaped.
  static constexpr Duration kGraceTime = seconds(15);

  explicit ChangeWatch(TimePoint since) : since_(since), next_look_(since + kWatchTime) {}

  struct Seen {
    bool is_serving = false;
    bool is_dying = false;                           // a replica: its cause is not known yet
    std::optional<TimePoint> replica_fault_at = {};  // the last one
  };
  enum class Verdict { wait, commit, take_back };
  Verdict look(const Seen& seen, TimePoint now);
  TimePoint next_look() const { return next_look_; }
  TimePoint since() const { return since_; }

 private:
  TimePoint since_;
  TimePoint next_look_;
};

}  // namespace plimsoll
