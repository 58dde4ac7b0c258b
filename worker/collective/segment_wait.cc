#include "worker/collective/segment_wait.h"

#include <algorithm>

#include <immintrin.h>

#include "shared/base/futex.h"

namespace plimsoll {
namespace {

constexpr Duration kSpinTime = std::chrono::microseconds(50);
constexpr int kSpinsPerLook = 32;  // at the clock and the abort word
constexpr Duration kSleepMax = milliseconds(100);

}  // namespace

bool reached(std::uint32_t value, std::uint32_t target) {
  return static_cast<std::int32_t>(value - target) >= 0;
}

Waited wait_for(const ReplicaSegment& segment, SegmentCounter counter, std::uint32_t target,
                const WaitLimit& limit) {
  const auto there = [&] { return reached(counter.value.load(std::memory_order_acquire), target); };
  if (there()) return Waited::reached;
  const TimePoint start = now();
  if (limit.spin) {
    const TimePoint spin_end = start + std::min(kSpinTime, limit.timeout);
    do {
      for (int i = 0; i < kSpinsPerLook; ++i) {
        if (there()) return Waited::reached;
        _mm_pause();
      }
      if (segment.aborted()) return Waited::aborted;
    } while (now() < spin_end);
  }
  // Announced before the last look at the counter: either this look sees the new value, or who
  // writes it sees the sleeper. Both sides need sequential consistency for that.
  counter.sleepers.fetch_add(1);
  Waited result = Waited::timed_out;
  for (;;) {
    const std::uint32_t value = counter.value.load();
    if (reached(value, target)) {
      result = Waited::reached;
      break;
    }
    if (segment.aborted()) {
      result = Waited::aborted;
      break;
    }
    const Duration left = limit.timeout - (now() - start);
    if (left <= Duration::zero()) break;
    futex_wait(counter.value, value, std::min(left, kSleepMax));
  }
  counter.sleepers.fetch_sub(1);
  return result;
}

void advance(SegmentCounter counter, std::uint32_t value) {
  counter.value.store(value);
  if (counter.sleepers.load() != 0) futex_wake_all(counter.value);
}

}  // namespace plimsoll
