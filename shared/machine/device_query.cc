#include "shared/machine/device_query.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/machine/cgroup.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kProcFileBytesMax = 16 * 1024 * 1024;  // cpuinfo of a machine of 1,024 CPUs

// The text after `key` and a colon in a file of such lines; "" where there is none.
std::string_view field_of(std::string_view content, std::string_view key) {
  for (const std::string_view line : split(content, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (trim(line.substr(0, colon)) == key) return trim(line.substr(colon + 1));
  }
  return {};
}

std::optional<std::int64_t> leading_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc()) return std::nullopt;
  return value;
}

// /proc/meminfo counts in KiB.
Result<Bytes> memory_field(std::string_view meminfo, std::string_view key) {
  const std::optional<std::int64_t> kib = leading_int(field_of(meminfo, key));
  if (!kib || *kib < 0 || *kib > std::numeric_limits<Bytes>::max() / kKiB) {
    return unavailable(fmt::format("read /proc/meminfo: there is no readable {}", key));
  }
  return *kib * kKiB;
}

// The affinity mask within the cpuset, as the kernel says it.
Result<std::vector<int>> usable_cpus(const fs::path& root) {
  const std::string status = TRY(read_file(root / "proc/self/status", kProcFileBytesMax));
  const std::vector<int> cpus = parse_cpu_list(field_of(status, "Cpus_allowed_list"));
  if (cpus.empty())
    return unavailable("read /proc/self/status: no usable CPU in Cpus_allowed_list");
  return cpus;
}

// Nodes that have usable CPUs; CPUs of no node go to the first, so that nodes are a partition.
std::vector<NumaNode> numa_nodes(const fs::path& root, const std::vector<int>& cpus) {
  std::map<int, std::vector<int>> cpus_of;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", failure)) {
    const std::string name = entry.path().filename().string();
    const std::int64_t id = name.substr(0, 4) == "node"
                                ? leading_int(std::string_view(name).substr(4)).value_or(-1)
                                : -1;
    if (id < 0 || id > std::numeric_limits<int>::max()) continue;
    const Result<std::string> list = read_file(entry.path() / "cpulist", kProcFileBytesMax);
    if (list) cpus_of[static_cast<int>(id)] = parse_cpu_list(trim(*list));
  }
  std::vector<NumaNode> nodes;
  std::vector<int> left = cpus;
  for (const auto& [id, members] : cpus_of) {
    NumaNode node{.id = id, .cpus = {}};
    std::set_intersection(left.begin(), left.end(), members.begin(), members.end(),
                          std::back_inserter(node.cpus));
    std::erase_if(
        left, [&](int cpu) { return std::binary_search(node.cpus.begin(), node.cpus.end(), cpu); });
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  if (nodes.empty()) nodes.push_back({.id = 0, .cpus = {}});
  std::vector<int>& first = nodes.front().cpus;
  first.insert(first.end(), left.begin(), left.end());
  std::sort(first.begin(), first.end());
  return nodes;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  constexpr int kCpusMax = 65'536;
  std::vector<int> cpus;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const std::optional<std::int64_t> first = leading_int(part);
    const std::optional<std::int64_t> last =
        dash == std::string_view::npos ? first : leading_int(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kCpusMax) continue;
    for (std::int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

Result<Machine> query_machine(const fs::path& root) {
  const std::string meminfo = TRY(read_file(root / "proc/meminfo", kProcFileBytesMax));
  Machine machine;
  const Result<std::string> cpuinfo = read_file(root / "proc/cpuinfo", kProcFileBytesMax);
  if (cpuinfo) machine.cpu_name = field_of(*cpuinfo, "model name");
  if (machine.cpu_name.empty()) machine.cpu_name = "unknown CPU";
  machine.cpus = TRY(usable_cpus(root));
  machine.nodes = numa_nodes(root, machine.cpus);
  machine.memory_total = TRY(memory_field(meminfo, "MemTotal"));
  machine.memory_available = TRY(memory_field(meminfo, "MemAvailable"));
  const CgroupLimits limits = read_cgroup_limits(root);
  machine.cpu_quota = limits.cpus;
  if (limits.memory < machine.memory_total) {  // a limit above the machine's memory limits nothing
    machine.cgroup_limit = limits.memory;
    machine.cgroup_used = limits.memory_used;
  }
  return machine;
}

}  // namespace plimsoll
