// MemoryStatus: the plan beside what was measured, for `status` and `plan`. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/cohort.h"
#include "shared/base/json.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/reconcile.h"

namespace plimsoll {

struct RankMemory {
  const MemoryPlan& plan;
  const RankPlan& rank;
  const Worker& worker;
  Blocks kv_blocks = 0;  // committed; 0: not yet
};

// {"planned", "measured", "resident", "source", "rows": [{"term", "planned", "measured"}],
//  "kv": {"planned", "committed", "touched"}, "free", "neighbours", "cgroup"}; what is not known is
// null. `planned` and `measured` are sums without KV and margin.
Json rank_memory_json(const RankMemory& memory);

// "the context is 7,648 of 262,144 tokens, KV 0.60 GiB of the 10.00 GiB that were planned: what
// memory allows"; empty where nothing was lowered. `committed`: KV blocks; 0: not yet.
std::string lowered_line(const LaunchPlan& plan, Blocks committed);

Json drifts_json(const std::vector<Drift>& drifts);

}  // namespace plimsoll
