#include "worker/rank_collective.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/kernel_arguments.h"
#include "shared/memory/collective_bytes.h"
#include "shared/options/collective_option.h"
#include "worker/collective/ipc_collective.h"
#include "worker/collective/nccl_collective.h"
#include "worker/collective/shm_collective.h"

namespace plimsoll {
namespace {

static_assert(kIpcRanks == cuda::kIpcRanksMax, "plans and kernels have other limits");

// On a rank's device, in place of `host`, which is of the segment.
Result<std::unique_ptr<Collective>> make_device_collective(RankCollectiveParts& parts,
                                                           std::unique_ptr<Collective> host) {
  const LaunchedRank& launched = *parts.launched;
  const std::string& wanted = launched.options.collective;
  parts.sockets.insert(
      parts.sockets.begin() + std::min<std::ptrdiff_t>(parts.rank, std::ssize(parts.sockets)),
      UniqueFd());
  if (adds_up_by_nccl(launched.options)) {
    return make_nccl_collective({.segment = parts.segment,
                                 .rank = parts.rank,
                                 .host = std::move(host),
                                 .runtime = parts.on->runtime,
                                 .sockets = std::move(parts.sockets),
                                 .channels = kNcclChannels});
  }
  if (wanted != "auto" && wanted != "ipc" && wanted != "fused") {
    return invalid(fmt::format(
        "collective: ranks with CUDA kernels do not add up by {}; ipc, fused and nccl are there",
        wanted));
  }
  return make_ipc_collective({.segment = parts.segment,
                              .segment_memory = parts.segment_memory,
                              .rank = parts.rank,
                              .host = std::move(host),
                              .runtime = parts.on->runtime,
                              .norms = wanted == "ipc" ? nullptr : &norm_sink(*parts.on->backend),
                              .sockets = std::move(parts.sockets),
                              .buffer_bytes = launched.on_host_cuda ? kHostIpcBytes : kIpcBytes,
                              .link = parts.on->link == DeviceLink::nvlink ? cuda::PeerLink::nvlink
                                                                           : cuda::PeerLink::pcie});
}

}  // namespace

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
  if (parts.on == nullptr || parts.on->runtime == nullptr) return made;
  const Bytes before = TRY(parts.on->runtime->memory()).free;
  made.collective = TRY(make_device_collective(parts, std::move(made.collective)));
  // Of the whole device: a neighbour that ended just then would make it less than nothing.
  const Bytes least = adds_up_by_nccl(launched.options) ? 0 : kIpcBytes;
  const Bytes taken =
      std::max(launched.on_host_cuda ? 0 : least, before - TRY(parts.on->runtime->memory()).free);
  made.memory = launched.on_host_cuda ? made.memory + taken : taken;
  return made;
}

}  // namespace plimsoll
