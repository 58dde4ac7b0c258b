#include "daemon/restart_policy.h"

#include <algorithm>

namespace plimsoll {

bool is_permanent(Code code) {
  switch (code) {
    case Code::invalid:
    case Code::not_found:
    case Code::does_not_fit:
    case Code::corrupt:
      return true;
    case Code::unavailable:
    case Code::timed_out:
    case Code::internal:
      return false;
  }
  return false;
}

FaultClass fault_class(Code code, bool is_of_device) {
  if (is_of_device) return FaultClass::device;
  return is_permanent(code) ? FaultClass::permanent : FaultClass::transient;
}

void RestartPolicy::became_ready(TimePoint now) {
  was_ever_ready_ = true;
  ready_since_ = now;
}

std::optional<Duration> RestartPolicy::next_delay(Code cause, TimePoint now, Duration longest) {
  // What has fitted before fits again when others give their memory back.
  const bool may_fit = cause == Code::does_not_fit && was_ever_ready_;
  if (is_permanent(cause) && !may_fit) return std::nullopt;
  if (ready_since_ && now - *ready_since_ >= kHealthyAfter) failures_ = 0;
  ready_since_.reset();
  ++failures_;
  if (!was_ever_ready_ && failures_ >= starts_max_) return std::nullopt;

  Duration delay = kFirstDelay;
  if (failures_ > 1) {
    const int doublings = std::min(failures_ - 2, 6);  // 2^6 s is past the maximum
    delay = std::min(kBaseDelay * (1 << doublings), kDelayMax);
  }
  // 0.8 to 1.2, at the most that it may be 0.8 to 1: replicas that died together do not load
  // together.
  const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
  const auto most = static_cast<double>(std::min(longest, kDelayMax).count());
  const double wanted = static_cast<double>(delay.count()) * (0.8 + 0.4 * uniform);
  const double jittered = wanted <= most ? wanted : most * (0.8 + 0.2 * uniform);
  return Duration(static_cast<Duration::rep>(jittered));
}

}  // namespace plimsoll
