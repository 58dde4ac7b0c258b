// Cgroup: the tightest memory and CPU limits over this process, of cgroup v2, v1 or both (hybrid).
#pragma once

#include <filesystem>

#include "shared/base/units.h"

namespace plimsoll {

struct CgroupLimits {
  // Of the group, this process's own or an ancestor, that has the least left; no limit: the largest
  // Bytes. `memory_used` leaves out page cache that the kernel can drop.
  Bytes memory = 0;
  Bytes memory_used = 0;
  double cpus = 0;  // by quota; 0: none
};

// What cannot be read limits nothing. `root` stands before /proc and /sys.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root);

}  // namespace plimsoll
