// DeviceQuery: reads this machine: /proc, the affinity mask, cgroup v2 or v1.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/machine/machine.h"

namespace plimsoll {

// `root` stands before /proc and /sys, for tests.
Result<Machine> query_machine(const std::filesystem::path& root = "/");

}  // namespace plimsoll
