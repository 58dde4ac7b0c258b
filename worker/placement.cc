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

}  // namespace

Status bind_to_memory_node(int node) {
  if (node < 0 || node >= kNodesMax) return unavailable(fmt::format("bind to node {}", node));
  std::array<unsigned long, kNodesMax / kWordBits> mask{};  // NOLINT(google-runtime-int)
  mask[static_cast<std::size_t>(node / kWordBits)] = 1UL << (node % kWordBits);
  if (::syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), kNodesMax) != 0) {
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
