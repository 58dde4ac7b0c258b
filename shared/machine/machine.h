// Machine: what the planner knows of the computer: plain data, made by device_query or a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/units.h"

namespace plimsoll {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // that this process may use
};

struct Machine {
  std::string cpu_name;
  std::vector<int> cpus;        // usable: affinity mask and cpuset
  double cpu_quota = 0;         // CPUs by cgroup quota (cpu.max); 0: none
  std::vector<NumaNode> nodes;  // at least one, a partition of `cpus`
  Bytes memory_total = 0;
  Bytes memory_available = 0;  // MemAvailable
  Bytes cgroup_limit = 0;      // of the ancestor that has the least left; 0: none
  Bytes cgroup_used = 0;       // by that cgroup, without reclaimable page cache
};

}  // namespace plimsoll
