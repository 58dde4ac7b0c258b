// RankPlacement: how many threads a rank has, and which CPUs of which NUMA node they are bound to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shared/machine/machine.h"

namespace plimsoll {

struct RankPlacement {
  std::int64_t threads = 1;
  std::vector<int> cpus;  // one a thread; empty: not bound
  int numa_node = 0;
};

// Ranks get disjoint CPUs, each within one node, when all together fill the usable CPUs or the
// machine has several nodes. A smaller deployment on one node is left to the kernel, since another
// one beside it would be bound to the same CPUs. Threads unset: usable CPUs divided by ranks.
std::vector<RankPlacement> place_ranks(const Machine& machine, std::int64_t ranks,
                                       std::optional<std::int64_t> threads);

// CPUs by affinity and quota, at least 1.
std::int64_t usable_cpu_count(const Machine& machine);

}  // namespace plimsoll
