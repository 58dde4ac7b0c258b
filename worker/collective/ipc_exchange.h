// IpcExchange: each rank's descriptor to all its peers, over the sockets that the daemon put
// between every two of them.
#pragma once

#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// By rank; the own one is empty.
using PeerFds = std::vector<UniqueFd>;

// Sends `own` to every peer and returns theirs. `what` it is, for messages: "buffer", "nccl id".
// Errors: a peer that does not send within the deadline (timed_out) or is gone; the group's abort
// (unavailable).
Result<PeerFds> exchange_descriptors(const PeerFds& sockets, int rank, int own,
                                     const std::string& what, const ReplicaSegment& segment,
                                     Duration deadline);
// The two halves of it, where one rank has what all need.
Status give_descriptor(const PeerFds& sockets, int rank, int own, const std::string& what);
Result<UniqueFd> take_descriptor(const PeerFds& sockets, int peer, const std::string& what,
                                 const ReplicaSegment& segment, Duration deadline);

}  // namespace plimsoll
