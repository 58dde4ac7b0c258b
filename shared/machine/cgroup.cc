#include "shared/machine/cgroup.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();
constexpr std::size_t kFileBytesMax = 4 * 1024 * 1024;
constexpr int kDepthMax = 64;

// A mounted hierarchy and this process's group in it.
struct Hierarchy {
  fs::path mount;      // with the root before it
  fs::path own_group;  // below it
  bool v2 = false;
};

std::string file_text(const fs::path& path) {
  const Result<std::string> content = read_file(path, kFileBytesMax);
  return content ? std::string(trim(*content)) : "";
}

// "max" and anything else that is no number: nullopt.
std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

bool lists(std::string_view comma_list, std::string_view word) {
  const std::vector<std::string_view> words = split(comma_list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// This process's group in the v2 hierarchy ("") or in that of a v1 controller; lines of
// /proc/self/cgroup are "4:memory:/path", v2's is "0::/path".
std::string group_path(std::string_view proc_cgroup, std::string_view controller) {
  for (const std::string_view line : split(proc_cgroup, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool found = controller.empty() ? controllers.empty() : lists(controllers, controller);
    if (found) return std::string(line.substr(second + 1));
  }
  return {};
}

// Fields of a /proc/self/mountinfo line: 3 is the mounted root, 4 the mount point; after the dash
// come type, source and super options.
std::optional<Hierarchy> find_hierarchy(const fs::path& root, std::string_view controller) {
  const std::string mounts = file_text(root / "proc/self/mountinfo");
  const std::string own = group_path(file_text(root / "proc/self/cgroup"), controller);
  if (own.empty()) return std::nullopt;
  for (const std::string_view line : split(mounts, '\n')) {
    const std::vector<std::string_view> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    const bool wanted = controller.empty() ? v2 : dash[1] == "cgroup" && lists(dash[3], controller);
    if (!wanted) continue;
    // In a container the mounted root is often the group itself: then nothing is below it.
    const fs::path below = fs::path(own).lexically_relative(fs::path(fields[3]));
    const bool inside = !below.empty() && *below.begin() != "..";
    return Hierarchy{.mount = root / fs::path(fields[4]).relative_path(),
                     .own_group = inside ? below : fs::path("."),
                     .v2 = v2};
  }
  return std::nullopt;
}

// The group and its ancestors up to the mount point.
std::vector<fs::path> groups_of(const Hierarchy& hierarchy) {
  std::vector<fs::path> groups;
  fs::path group = hierarchy.own_group;
  for (int depth = 0; depth < kDepthMax && !group.empty() && group != "."; ++depth) {
    groups.push_back(hierarchy.mount / group);
    group = group.parent_path();
  }
  groups.push_back(hierarchy.mount);
  return groups;
}

// Page cache that the kernel drops under pressure: files, but not shared memory.
Bytes reclaimable(std::string_view memory_stat, bool v2) {
  const std::string_view prefix = v2 ? "" : "total_";
  Bytes sum = 0;
  for (const std::string_view line : split(memory_stat, '\n')) {
    for (const std::string_view name : {"active_file", "inactive_file"}) {
      const std::string key = std::string(prefix) + std::string(name) + " ";
      if (line.substr(0, key.size()) != key) continue;
      sum += number(line.substr(key.size())).value_or(0);
    }
  }
  return sum;
}

void tighten_memory(const Hierarchy& hierarchy, CgroupLimits& limits) {
  const bool v2 = hierarchy.v2;
  for (const fs::path& group : groups_of(hierarchy)) {
    const std::optional<Bytes> limit =
        number(file_text(group / (v2 ? "memory.max" : "memory.limit_in_bytes")));
    const std::optional<Bytes> used =
        number(file_text(group / (v2 ? "memory.current" : "memory.usage_in_bytes")));
    if (!limit || !used) continue;
    const Bytes cache = reclaimable(file_text(group / "memory.stat"), v2);
    const Bytes held = std::max<Bytes>(0, *used - cache);
    if (*limit - held < limits.memory - limits.memory_used) {
      limits.memory = *limit;
      limits.memory_used = held;
    }
  }
}

void tighten_cpus(const Hierarchy& hierarchy, CgroupLimits& limits) {
  for (const fs::path& group : groups_of(hierarchy)) {
    std::optional<std::int64_t> quota;
    std::optional<std::int64_t> period;
    if (hierarchy.v2) {
      const std::string text = file_text(group / "cpu.max");  // "200000 100000"
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) continue;
      quota = number(std::string_view(text).substr(0, space));
      period = number(std::string_view(text).substr(space + 1));
    } else {
      quota = number(file_text(group / "cpu.cfs_quota_us"));  // -1: none
      period = number(file_text(group / "cpu.cfs_period_us"));
    }
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    limits.cpus = limits.cpus == 0 ? cpus : std::min(limits.cpus, cpus);
  }
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits{.memory = kUnlimited, .memory_used = 0, .cpus = 0};
  // In a hybrid system a controller is in one of the two; reading both costs nothing.
  for (const std::string_view controller : {"", "memory"}) {
    const std::optional<Hierarchy> found = find_hierarchy(root, controller);
    if (found) tighten_memory(*found, limits);
  }
  for (const std::string_view controller : {"", "cpu"}) {
    const std::optional<Hierarchy> found = find_hierarchy(root, controller);
    if (found) tighten_cpus(*found, limits);
  }
  return limits;
}

}  // namespace plimsoll
