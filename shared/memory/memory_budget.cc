#include "shared/memory/memory_budget.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll {

MemoryBudget decide_budget(const Machine& machine, const Options& options) {
  MemoryBudget budget;
  budget.available = machine.memory_available;
  budget.available_source = "available memory";
  if (machine.cgroup_limit > 0) {
    const Bytes left = std::max<Bytes>(0, machine.cgroup_limit - machine.cgroup_used);
    if (left < budget.available) {
      budget.available = left;
      budget.available_source = "cgroup limit";
    }
  }
  const std::int64_t ranks = options.tp * options.dp;
  budget.per_rank_max = budget.available / ranks;
  if (!options.device_memory) {
    // Others need memory too, and page cache of the model file is memory.
    budget.per_rank = budget.available / 2 / ranks;
    budget.source = budget.available_source == "cgroup limit" ? "half of what the cgroup leaves"
                                                              : "half of what is available";
    return budget;
  }
  budget.per_rank = std::min(*options.device_memory, budget.per_rank_max);
  budget.source = "--device-memory";
  if (budget.per_rank < *options.device_memory) {
    budget.note = fmt::format(
        "device-memory is {} a rank, but {} over {} ranks is {}: the plan stays within that",
        format_bytes(*options.device_memory),
        fmt::format("{} of {}", format_bytes(budget.available), budget.available_source), ranks,
        format_bytes(budget.per_rank));
    budget.source = "--device-memory, cut to what is available";
  }
  return budget;
}

}  // namespace plimsoll
