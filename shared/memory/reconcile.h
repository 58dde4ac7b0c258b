// Reconcile: the second phase of a launch: the plan against what the ranks measured once their
// weights were loaded. Pure.
//
// Every term that is not what was planned is a drift; KV gives way for what is more, on all ranks
// alike. When it can no longer hold one request of the context, a context that was `auto` is
// lowered; where that is not enough, or it was given, the launch is refused, once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/memory/measured.h"
#include "shared/memory/memory_plan.h"

namespace plimsoll {

// How far a term may be off without a word. On a device: the larger of both, of the term. On the
// CPU, the larger of a share of all that the rank was planned to hold beside KV, and what pages of
// libraries that others also use come and go by.
constexpr Bytes kDeviceTolerance = 256 * kMiB;
constexpr double kDeviceToleranceShare = 0.005;
constexpr double kCpuToleranceShare = 0.02;
constexpr Bytes kCpuTolerance = 2 * kMiB;

struct Drift {
  std::string term;
  Trust trust = Trust::computed;  // of the planned figure
  Bytes planned = 0;
  Bytes measured = 0;
  Bytes tolerance = 0;
  std::vector<std::string> ranks;  // "0.3": replica and rank; all that have these numbers
};

struct Reconciled {
  Blocks kv_blocks = 0;                    // that every rank can have; never more than planned
  Tokens context_length = 0;               // of requests; never more than planned
  std::vector<Drift> drifts;               // beyond the tolerance, largest first
  std::optional<std::string> shrunk = {};  // KV is less than planned: the rank and the arithmetic
  std::optional<Error> refusal = {};       // Code::does_not_fit
};

struct RankMeasured {
  std::int64_t replica = 0;
  std::int64_t rank = 0;
  Measured measured;
};

// `kv_blocks_max` are those of the plan, or fewer where other replicas run with fewer already.
Reconciled reconcile(const MemoryPlan& plan, std::span<const RankMeasured> ranks,
                     Blocks kv_blocks_max);

std::string drift_line(const Drift& drift);  // one line for people

}  // namespace plimsoll
