#include "shared/memory/rank_placement.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

// Each rank takes its CPUs from the first node that has enough left; false where none has.
bool bind_ranks(const Machine& machine, std::vector<RankPlacement>& ranks) {
  std::vector<std::size_t> taken(machine.nodes.size(), 0);
  for (RankPlacement& rank : ranks) {
    const auto count = static_cast<std::size_t>(rank.threads);
    std::size_t node = 0;
    while (node < taken.size() && machine.nodes[node].cpus.size() - taken[node] < count) ++node;
    if (node == taken.size()) return false;
    const auto first = machine.nodes[node].cpus.begin() + static_cast<std::ptrdiff_t>(taken[node]);
    rank.cpus.assign(first, first + static_cast<std::ptrdiff_t>(count));
    rank.numa_node = machine.nodes[node].id;
    taken[node] += count;
  }
  return true;
}

}  // namespace

std::int64_t usable_cpu_count(const Machine& machine) {
  auto count = static_cast<std::int64_t>(machine.cpus.size());
  if (machine.cpu_quota > 0) {
    count = std::min(count, static_cast<std::int64_t>(std::floor(machine.cpu_quota)));
  }
  return std::max<std::int64_t>(1, count);
}

std::vector<RankPlacement> place_ranks(const Machine& machine, std::int64_t ranks,
                                       std::optional<std::int64_t> threads) {
  const std::int64_t usable = usable_cpu_count(machine);
  const std::int64_t each = threads.value_or(std::max<std::int64_t>(1, usable / ranks));
  const RankPlacement unbound{.threads = each, .cpus = {}, .numa_node = 0};
  std::vector<RankPlacement> placed(static_cast<std::size_t>(ranks), unbound);
  const auto cpus = static_cast<std::int64_t>(machine.cpus.size());
  const bool several_nodes = machine.nodes.size() > 1;
  if (ranks * each > cpus || (ranks * each < cpus && !several_nodes)) return placed;
  std::vector<RankPlacement> bound = placed;
  return bind_ranks(machine, bound) ? bound : placed;
}

}  // namespace plimsoll
