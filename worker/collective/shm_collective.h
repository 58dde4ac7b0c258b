// ShmCollective: the collective of CPU ranks on one machine, in their replica's shared segment.
#pragma once

#include <memory>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "worker/collective/collective.h"

namespace plimsoll {

struct ShmCollectiveOptions {
  int rank = 0;
  // Spin for a while before sleeping. Right when ranks x threads fit the usable cores; with more
  // ranks than cores it costs milliseconds a call.
  bool spin = false;
  Duration deadline = seconds(60);  // for a peer to join a call; then the group is aborted
};

// REQUIRES: the segment outlives the collective. Errors: a rank outside the group, or one that has
// joined this segment before.
Result<std::unique_ptr<Collective>> make_shm_collective(ReplicaSegment segment,
                                                        const ShmCollectiveOptions& options);

}  // namespace plimsoll
