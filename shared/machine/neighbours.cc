#include "shared/machine/neighbours.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/machine/process_name.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStatusBytesMax = 64 * 1024;

struct ProcessStatus {
  std::string name;  // at most 15 characters of the program's
  std::int64_t parent = 0;
  bool is_dead = false;  // only its number is still taken
  Bytes bytes = 0;
};

std::int64_t leading_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// /proc/PID/status, which everyone may read. Resident anonymous and shared memory: others get it
// back when the process ends.
std::optional<ProcessStatus> read_status(const fs::path& process) {
  const Result<std::string> text = read_file(process / "status", kStatusBytesMax);
  if (!text) return std::nullopt;
  ProcessStatus status;
  for (const std::string_view line : split(*text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, colon);
    const std::string_view value = trim(line.substr(colon + 1));
    if (key == "Name") status.name = value;
    if (key == "State") status.is_dead = value.starts_with('Z') || value.starts_with('X');
    if (key == "PPid") status.parent = leading_number(value);
    if (key == "RssAnon" || key == "RssShmem") status.bytes += leading_number(value) * kKiB;
  }
  return status;
}

bool is_leftover(const ProcessStatus& status, const fs::path& proc) {
  if (status.name != "plimsoll-worker" && status.name != "plimsoll-router") return false;
  const auto parent = read_status(proc / std::to_string(status.parent));
  return !parent || parent->name != "plimsolld";
}

void keep_largest(std::vector<Neighbour>& found) {
  std::ranges::stable_sort(found, std::ranges::greater(), &Neighbour::bytes);
  std::ranges::stable_partition(found, &Neighbour::is_leftover);
  if (found.size() > kNeighboursMax) found.resize(kNeighboursMax);
}

}  // namespace

std::vector<Neighbour> find_neighbours(std::span<const std::int64_t> own, Bytes bytes_min,
                                       const fs::path& root) {
  std::vector<Neighbour> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(root / "proc", failure)) {
    const std::int64_t pid = leading_number(entry.path().filename().string());
    if (pid <= 0 || std::ranges::find(own, pid) != own.end()) continue;
    const std::optional<ProcessStatus> status = read_status(entry.path());
    if (!status || status->is_dead) continue;
    Neighbour neighbour;
    neighbour.pid = pid;
    neighbour.bytes = status->bytes;
    neighbour.is_leftover = is_leftover(*status, root / "proc");
    if (neighbour.bytes >= bytes_min || neighbour.is_leftover) found.push_back(neighbour);
  }
  keep_largest(found);
  for (Neighbour& neighbour : found) {
    ProcessName name = process_name(neighbour.pid, root);
    neighbour.user = std::move(name.user);
    neighbour.command = std::move(name.command);
  }
  return found;
}

std::vector<Neighbour> device_neighbours(const Machine& machine,
                                         std::span<const std::int64_t> own) {
  std::vector<Neighbour> found;
  for (std::size_t device = 0; device < machine.devices.size(); ++device) {
    for (const DeviceProcess& process : machine.devices[device].processes) {
      if (std::ranges::find(own, process.pid) != own.end()) continue;
      found.push_back({.pid = process.pid,
                       .user = process.user,
                       .command = process.command,
                       .bytes = process.bytes.value_or(0),
                       .where = fmt::format("{} {}", machine.devices[device].name, device)});
    }
  }
  keep_largest(found);
  return found;
}

std::string neighbour_line(const Neighbour& neighbour) {
  const std::string bytes = neighbour.bytes > 0 ? format_bytes(neighbour.bytes) : "memory";
  return fmt::format("PID {} ({}: {}{}) holds {}{}", neighbour.pid,
                     neighbour.user.empty() ? "unknown user" : neighbour.user,
                     neighbour.command.empty() ? "unknown command" : neighbour.command,
                     neighbour.is_leftover ? ", left over from an earlier plimsolld" : "", bytes,
                     neighbour.where.empty() ? "" : " of " + neighbour.where);
}

}  // namespace plimsoll
