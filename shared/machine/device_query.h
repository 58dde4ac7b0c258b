// DeviceQuery: reads this machine: /proc, the affinity mask, cgroup v2 or v1.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/machine/machine.h"

namespace plimsoll {

// `root` stands before /proc and /sys, for tests. Errors: unavailable or not_found, where /proc
// does not say what it must.
Result<Machine> query_machine(const std::filesystem::path& root = "/");

// "0-3,8" as the kernel prints it; parts that make no sense are skipped.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace plimsoll
