#include "daemon/leftovers.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/base/unique_fd.h"
#include "shared/machine/process_name.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEnvironmentBytesMax = 4 * 1024 * 1024;
constexpr std::size_t kFileBytesMax = 64 * 1024;
constexpr std::size_t kLivesMax = 16;
constexpr Duration kEndTime = seconds(1);  // for all that was killed to be gone

// "INSTANCE/CHILD" of a process; nothing where it has none, is not ours to read, or is dead.
std::optional<std::string> mark_of(const fs::path& process) {
  const Result<std::string> variables = read_file(process / "environ", kEnvironmentBytesMax);
  if (!variables) return std::nullopt;
  for (const std::string_view variable : split(*variables, '\0')) {
    if (!variable.starts_with(kInstanceVariable)) continue;
    const std::string_view value = variable.substr(kInstanceVariable.size());
    if (value.starts_with('=')) return std::string(value.substr(1));
  }
  return std::nullopt;
}

bool is_of(const std::optional<std::string>& mark, const std::string& instance,
           const std::vector<std::string>& children) {
  if (!mark || !mark->starts_with(instance + "/")) return false;
  const std::string child = mark->substr(instance.size() + 1);
  return children.empty() || std::ranges::find(children, child) != children.end();
}

std::string boot_of(const fs::path& root) {
  const Result<std::string> id = read_file(root / "proc/sys/kernel/random/boot_id", kFileBytesMax);
  return id ? std::string(trim(*id)) : "unknown";
}

}  // namespace

std::string instance_variable(const std::string& instance, const std::string& child) {
  return fmt::format("{}={}/{}", kInstanceVariable, instance, child);
}

std::vector<std::int64_t> processes_of(const std::string& instance,
                                       const std::vector<std::string>& children,
                                       const fs::path& root) {
  std::vector<std::int64_t> pids;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(root / "proc", failed)) {
    const std::string name = entry.path().filename().string();
    std::int64_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (is_of(mark_of(entry.path()), instance, children)) pids.push_back(pid);
  }
  std::ranges::sort(pids);
  return pids;
}

std::vector<std::string> end_processes_of(const std::string& instance,
                                          const std::vector<std::string>& children) {
  std::vector<std::string> lines;
  std::vector<UniqueFd> ended;
  for (const std::int64_t pid : processes_of(instance, children)) {
    UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    // The descriptor is of whoever has the number now: only then is it looked at for good.
    const fs::path folder = fs::path("/proc") / std::to_string(pid);
    if (!process || !is_of(mark_of(folder), instance, children)) continue;
    const std::string command = process_name(pid).command;
    if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) continue;
    lines.push_back(fmt::format("ended process {} ({}), which was left behind", pid, command));
    ended.push_back(std::move(process));
  }
  const TimePoint until = now() + kEndTime;
  for (const UniqueFd& process : ended) {
    pollfd one{.fd = process.get(), .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<milliseconds>(until - now()).count();
    (void)::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
  }
  return lines;
}

std::vector<std::string> Lives::begin(const fs::path& state, const std::string& instance,
                                      const fs::path& root) {
  const fs::path path = state / "instances";
  const std::string boot = boot_of(root);
  std::vector<std::string> lines;
  std::vector<std::string> lives;  // "BOOT INSTANCE"
  if (const Result<std::string> text = read_file(path, kFileBytesMax)) {
    for (const std::string_view life : split(*text, '\n')) {
      const std::size_t space = life.find(' ');
      if (space == std::string_view::npos || life.substr(0, space) != boot) continue;
      const std::string earlier(life.substr(space + 1));
      if (earlier.empty()) continue;
      for (std::string& line : end_processes_of(earlier)) lines.push_back(std::move(line));
      // One that is stuck in the kernel is tried again by the next life.
      if (!processes_of(earlier).empty()) lives.emplace_back(life);
    }
  }
  if (lives.size() >= kLivesMax) lives.erase(lives.begin());
  lives.push_back(boot + " " + instance);
  std::string text;
  for (const std::string& life : lives) text += life + "\n";
  const Status written = write_file(path, text);
  if (!written)
    lines.push_back("leftovers of this life could not be told: " + written.error().message);
  return lines;
}

}  // namespace plimsoll
