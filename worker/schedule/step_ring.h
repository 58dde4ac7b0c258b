// StepRing: the queue of steps from rank 0 to the other ranks of its replica, in shared memory.
//
// One StepPublisher (rank 0), one StepReceiver on each other rank; every receiver gets every
// message once, in order. Bounded: the publisher waits while the slowest receiver has no room for
// more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"

namespace plimsoll {

class StepPublisher {
 public:
  struct Options {
    bool spin = false;                // before sleeping; see ShmCollectiveOptions
    Duration deadline = seconds(60);  // for the slowest receiver to make room; then it is an error
  };
  StepPublisher(ReplicaSegment segment, const Options& options);

  // Errors: longer than the whole ring (invalid), a receiver lags (timed_out, names it), the
  // replica was aborted (unavailable, with the reason).
  Status publish(std::span<const std::byte> message);

  std::uint32_t published() const;      // messages so far
  std::uint32_t taken(int rank) const;  // of these, how many the rank has taken

 private:
  Status wait_for_room(std::uint64_t bytes);

  ReplicaSegment segment_;
  Options options_;
  std::uint64_t end_ = 0;  // bytes ever written
};

class StepReceiver {
 public:
  struct Options {
    int rank = 1;
    bool spin = false;
  };
  StepReceiver(ReplicaSegment segment, const Options& options);

  // The next message, valid until the next call; nullopt when none came in time, so that the caller
  // can look at its other sockets. Errors: the replica was aborted (unavailable, with the reason).
  Result<std::optional<std::span<const std::byte>>> receive(Duration timeout);

 private:
  ReplicaSegment segment_;
  Options options_;
  std::vector<std::byte> message_;  // holds the longest message from the start
};

}  // namespace plimsoll
