// IpcCollective: the collective of ranks on GPUs that reach each other's memory (or, in tests, of
// processes on the host executor): their sums are added by kernels in the stream, without the host.
//
// Each rank shares one buffer with all others, who write to it (kernels/cuda/ipc_protocol.cuh). An
// all-reduce only enqueues, and may be recorded; whether it could end is known at the next gather
// or barrier, whose data go through the ranks' segment in host memory. A rank that waits on its
// device leaves when the segment is aborted, by whomever, or at the deadline.
#pragma once

#include <memory>

#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/norm_sink.h"
#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "worker/collective/collective.h"
#include "worker/collective/ipc_exchange.h"

namespace plimsoll {

struct IpcCollectiveParts {
  ReplicaSegment segment;
  std::span<std::byte> segment_memory;  // all of it
  int rank = 0;
  std::unique_ptr<Collective> host;  // the same ranks', of host memory
  cuda::DeviceRuntime* runtime = nullptr;
  cuda::NormSink* norms = nullptr;  // of the runtime's backend; none: no kernel norms what it sums
  PeerFds sockets;
  Bytes buffer_bytes = 0;  // that the plan has for it
  cuda::PeerLink link = cuda::PeerLink::pcie;
  Duration deadline = seconds(60);           // for a peer to come to a call
  Duration exchange_deadline = seconds(60);  // for all to have shared their buffers
};

// Waits for all ranks to have shared their buffers. REQUIRES: the runtime outlives the collective,
// and the segment both. Errors: more ranks than it is made for (invalid); what exchanging buffers
// failed by, here or at a peer; the runtime's.
Result<std::unique_ptr<Collective>> make_ipc_collective(IpcCollectiveParts parts);

}  // namespace plimsoll
