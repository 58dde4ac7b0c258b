// NcclCollective: the collective of ranks on GPUs, their sums added by NVIDIA's NCCL, opened at run
// time. For GPUs that do not reach each other's memory, and to compare IpcCollective with.
//
// The sum over ranks is NCCL's, in f64 and in whatever order it takes, the same on every rank; a
// kernel of ours then adds it and rounds once. Nothing blocks without end: the communicator is made
// without blocking, and a thread aborts it when the segment is aborted, by a rank or by the daemon,
// which watches that steps end. NCCL's abort waits until the graphs that have its kernels are gone:
// the collective drops the runtime's recordings before it ends, so nothing may be replayed then.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/device_runtime.h"
#include "shared/base/clock.h"
#include "shared/base/replica_segment.h"
#include "worker/collective/collective.h"
#include "worker/collective/ipc_exchange.h"

namespace plimsoll {

struct NcclCollectiveParts {
  ReplicaSegment segment;
  int rank = 0;
  std::unique_ptr<Collective> host;  // the same ranks', of host memory
  cuda::DeviceRuntime* runtime = nullptr;
  PeerFds sockets;
  std::string library = "libnccl.so.2";
  int channels = 2;                          // at most; each takes 12 MiB a connection
  Duration deadline = seconds(60);           // for all ranks to come, and for a call to be taken
  Duration exchange_deadline = seconds(60);  // for all ranks to have the id
};

// Waits for all ranks. REQUIRES: the runtime outlives the collective, and the segment both. Errors:
// no NCCL (not_found) or none of ours (invalid); NCCL's; a rank that does not come.
Result<std::unique_ptr<Collective>> make_nccl_collective(NcclCollectiveParts parts);

}  // namespace plimsoll
