// RankCollective: the collective that a launch gives a rank, of its device.
#pragma once

#include <memory>
#include <span>

#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "worker/collective/collective.h"
#include "worker/collective/ipc_exchange.h"
#include "worker/rank_backend.h"
#include "worker/worker_setup.h"

namespace plimsoll {

struct RankCollectiveParts {
  const LaunchedRank* launched = nullptr;
  ReplicaSegment segment;
  std::span<std::byte> segment_memory;
  int rank = 0;
  PeerFds sockets;                  // to the other ranks, in their order
  const RankBackend* on = nullptr;  // of a simulated rank none
};

struct RankCollective {
  std::unique_ptr<Collective> collective;
  // What it took of the memory that is planned for it: of a GPU, else of this process.
  Bytes memory = 0;
};

// Errors: the collective's.
Result<RankCollective> make_rank_collective(RankCollectiveParts parts);

}  // namespace plimsoll
