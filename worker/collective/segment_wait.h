// SegmentWait: waiting for a counter in a replica's segment, and moving one on.
//
// Every wait ends: by the counter, by the segment's abort word (looked at all the time while
// spinning, at every wake-up and at least every 100 ms while asleep), or by its deadline.
#pragma once

#include <atomic>
#include <cstdint>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"

namespace plimsoll {

struct SegmentCounter {
  std::atomic<std::uint32_t>& value;
  std::atomic<std::uint32_t>& sleepers;
};

enum class Waited { reached, aborted, timed_out };

struct WaitLimit {
  bool spin = false;   // for about 50 µs before the first sleep
  Duration timeout{};  // from the call
};

// Counters wrap: `target` is reached when the counter is less than 2^31 ahead of it.
bool reached(std::uint32_t value, std::uint32_t target);

Waited wait_for(const ReplicaSegment& segment, SegmentCounter counter, std::uint32_t target,
                const WaitLimit& limit);

// Everything written before is seen by those that this wakes.
void advance(SegmentCounter counter, std::uint32_t value);

}  // namespace plimsoll
