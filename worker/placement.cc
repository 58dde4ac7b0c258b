#include "worker/placement.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plimsoll {
namespace {

constexpr int kNodesMax = 1024;
constexpr int kWordBits = static_cast<int>(sizeof(unsigned long) * CHAR_BIT);  // NOLINT
using NodeMask = std::array<unsigned long, kNodesMax / kWordBits>;  // NOLINT(google-runtime-int)

}  // namespace

Status bind_to_memory_node(int node) {
  if (node < 0 || node >= kNodesMax) return unavailable(fmt::format("bind to node {}", node));
  const auto word = static_cast<std::size_t>(node / kWordBits);
  NodeMask mask{};
  if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), kNodesMax, nullptr, MPOL_F_MEMS_ALLOWED) !=
      0) {
    return unavailable(fmt::format("list memory nodes: {}", std::strerror(errno)));
  }
  const unsigned long bit = 1UL << (node % kWordBits);  // NOLINT(google-runtime-int)
  // The system takes a preference for a node that is not there, and ignores it.
  if ((mask[word] & bit) == 0) {
    return unavailable(fmt::format("bind to node {}: this process may not use it", node));
  }
  mask = {};
  mask[word] = bit;
  // Preferred, not bound: a strict bind ends in the OOM killer while another node has memory free.
  if (::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), kNodesMax) != 0) {
    return unavailable(fmt::format("bind memory to node {}: {}", node, std::strerror(errno)));
  }
  return {};
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace plimsoll
