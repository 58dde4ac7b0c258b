// RestartPolicy: whether and when to start again what has died. Pure; the jitter is seeded.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "shared/base/clock.h"
#include "shared/base/result.h"

namespace plimsoll {

// A retry cannot help: bad options, a missing or damaged file, a plan that does not fit.
bool is_permanent(Code code);

// What has died: `device`: what it ran on has failed, so that it is not started there again.
enum class FaultClass { transient, permanent, device };
FaultClass fault_class(Code code, bool is_of_device);

class RestartPolicy {
 public:
  static constexpr Duration kFirstDelay = milliseconds(100);  // most deaths are single
  static constexpr Duration kBaseDelay = seconds(1);          // then twice as long each time
  static constexpr Duration kDelayMax = seconds(60);
  static constexpr Duration kHealthyAfter = seconds(60);  // ready for so long: as if never failed

  // `starts_max`: how often it may fail to become ready at all before that is final.
  RestartPolicy(std::uint64_t seed, int starts_max) : random_(seed), starts_max_(starts_max) {}

  void became_ready(TimePoint now);
  // Something died of that cause. Nothing: do not try again. No delay is longer than `longest`.
  std::optional<Duration> next_delay(Code cause, TimePoint now, Duration longest = kDelayMax);

  int failures() const { return failures_; }  // in a row

 private:
  std::mt19937_64 random_;
  int starts_max_;
  int failures_ = 0;
  bool was_ever_ready_ = false;
  std::optional<TimePoint> ready_since_;
};

}  // namespace plimsoll
