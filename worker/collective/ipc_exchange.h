// IpcExchange: each rank's descriptor to all its peers, over the sockets that the daemon put
// between every two of them.
#pragma once

#include <vector>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// By rank; the own one is empty.
using PeerFds = std::vector<UniqueFd>;

// Sends `own` to every peer and returns theirs. Errors: a peer that does not send within the
// deadline (timed_out) or is gone; the group's abort (unavailable).
Result<PeerFds> exchange_descriptors(const PeerFds& sockets, int rank, int own,
                                     const ReplicaSegment& segment, Duration deadline);

}  // namespace plimsoll
