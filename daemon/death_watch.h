// DeathWatch: learns of a rank's death before the kernel has taken its memory apart.
//
// A process with many gigabytes takes the kernel up to a second to end, and only then does its
// pidfd tell; but its robust mutexes are given up first. Each rank holds one in its segment
// (ReplicaSegment::hold_life), and a thread here waits for it. One object for one life of a rank.
#pragma once

#include <atomic>
#include <thread>

#include "shared/base/replica_segment.h"

namespace plimsoll {

class DeathWatch {
 public:
  // At the rank's death `event_fd` (an eventfd) becomes readable. REQUIRES: the segment's memory
  // and event_fd outlive this; the rank holds its life.
  DeathWatch(ReplicaSegment segment, int rank, int event_fd);
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  ~DeathWatch();

  // True once it has come.
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> is_unwanted_ = false;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace plimsoll
