#include "worker/rank_collective.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "shared/memory/collective_bytes.h"
#include "worker/collective/ipc_collective.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {

Result<RankCollective> make_rank_collective(RankCollectiveParts parts) {
  const int ranks = parts.segment.ranks();
  if (ranks == 1) return RankCollective{.collective = make_single_collective()};
  const LaunchedRank& launched = *parts.launched;
  ShmCollectiveOptions options;
  options.rank = parts.rank;
  options.spin = launched.backend.spin;
  RankCollective made{
      .collective = TRY(make_shm_collective(parts.segment, options)),
      .memory = ceil_div(std::ssize(parts.segment_memory), static_cast<Bytes>(ranks))};
  if (parts.runtime == nullptr) return made;
  parts.sockets.insert(parts.sockets.begin() + std::min(parts.rank, ranks - 1), UniqueFd());
  const Bytes before = TRY(parts.runtime->memory()).free;
  made.collective =
      TRY(make_ipc_collective({.segment = parts.segment,
                               .segment_memory = parts.segment_memory,
                               .rank = parts.rank,
                               .host = std::move(made.collective),
                               .runtime = parts.runtime,
                               .norms = &norm_sink(*parts.backend),
                               .sockets = std::move(parts.sockets),
                               .buffer_bytes = launched.on_host_cuda ? kHostIpcBytes : kIpcBytes}));
  const Bytes taken = before - TRY(parts.runtime->memory()).free;
  made.memory = launched.on_host_cuda ? made.memory + taken : taken;
  return made;
}

}  // namespace plimsoll
