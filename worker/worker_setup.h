// WorkerSetup: what a Load message tells one rank, checked and in the worker's own terms. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cpu/cpu_backend.h"
#include "shared/base/log.h"
#include "shared/base/result.h"
#include "shared/collective/backend_table.h"
#include "shared/control/messages.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/options.h"
#include "worker/graph/decoder.h"

namespace plimsoll {

struct LaunchedRank {
  Options options;
  RankPlan plan;     // this rank's
  ShardPlan shards;  // of all ranks of the replica
  DecoderLimits limits;
  std::int64_t running_requests_max = 0;
  Blocks kv_blocks = 0;
  KvType kv_type = KvType::f16;
  std::int64_t recorded_rows_max = 0;     // cuda-graph-max-bs
  bool on_host_cuda = false;              // the CUDA backend, on the host executor
  CpuBackendOptions backend;              // `spin` is decided where the CPUs are known
  std::optional<Bytes> simulated_memory;  // of this rank's device; unset: it runs on the CPU
  std::int64_t threads_of_all_ranks = 0;  // of all replicas
  bool is_tentative = false;              // nothing is loaded before another Load
  std::string request_endpoint;
  std::optional<BackendTable> collectives = {};  // of an earlier start, to be checked
};

// Errors: a plan that lacks this rank or contradicts itself (internal); options that no backend
// here takes (invalid).
Result<LaunchedRank> read_load(const Load& load);

std::optional<LogLevel> parse_log_level(std::string_view name);

}  // namespace plimsoll
