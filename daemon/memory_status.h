// MemoryStatus: the plan beside what was measured, for `status` and `plan`. Pure.
#pragma once

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
// null. `planned` and `measured` are sums without KV.
Json rank_memory_json(const RankMemory& memory);

Json drifts_json(const std::vector<Drift>& drifts);

}  // namespace plimsoll
