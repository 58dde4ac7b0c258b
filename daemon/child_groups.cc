#include "daemon/child_groups.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = 4 * 1024 * 1024;
constexpr const char* kOwnName = "daemon";

Status write_word(const fs::path& path, std::string_view word) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), word.data(), word.size()) != static_cast<ssize_t>(word.size())) {
    return unavailable(
        fmt::format("write {} to {}: {}", word, path.string(), std::strerror(errno)));
  }
  return {};
}

// Where cgroup v2 is mounted: /sys/fs/cgroup, or beside v1 hierarchies /sys/fs/cgroup/unified.
fs::path mount_point(const fs::path& root) {
  const Result<std::string> mounts = read_file(root / "proc/self/mountinfo", kFileBytesMax);
  if (!mounts) return {};
  for (const std::string_view line : split(*mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos || !line.substr(dash + 3).starts_with("cgroup2 ")) continue;
    const std::vector<std::string_view> fields = split(line, ' ');
    if (fields.size() > 4) return fs::path(fields[4]);
  }
  return {};
}

// The manager marks what it has delegated. As another user, that the files are writable says it.
bool is_delegated(const fs::path& group) {
  std::array<char, 8> value{};
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    const ssize_t size = ::getxattr(group.c_str(), name, value.data(), value.size());
    if (size > 0 && value[0] == '1') return true;
  }
  return ::geteuid() != 0 && ::access((group / "cgroup.procs").c_str(), W_OK) == 0;
}

}  // namespace

fs::path own_group(const fs::path& root) {
  const fs::path mounted = mount_point(root);
  const Result<std::string> groups = read_file(root / "proc/self/cgroup", kFileBytesMax);
  if (mounted.empty() || !groups) return {};
  for (const std::string_view line : split(*groups, '\n')) {
    constexpr std::string_view kUnified = "0::/";
    if (!line.starts_with(kUnified)) continue;
    const fs::path inside(line.substr(kUnified.size()));
    return (root / mounted.relative_path() / inside).lexically_normal();
  }
  return {};
}

Result<ChildGroups> ChildGroups::take(const fs::path& delegated) {
  const fs::path own = delegated / kOwnName;
  if (::mkdir(own.c_str(), 0755) != 0 && errno != EEXIST) {
    return unavailable(
        fmt::format("make the control group {}: {}", own.string(), std::strerror(errno)));
  }
  TRY(write_word(own / "cgroup.procs", "0"));
  // Figures for each child where the kernel and the manager allow it; ending them needs none.
  for (const char* controller : {"+memory", "+pids"}) {
    (void)write_word(delegated / "cgroup.subtree_control", controller);
  }
  return ChildGroups(delegated);
}

ChildGroups ChildGroups::of_service() {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return {};
  const fs::path group = own_group();
  if (group.empty() || !is_delegated(group)) return {};
  Result<ChildGroups> groups = take(group);
  return groups ? std::move(*groups) : ChildGroups();
}

UniqueFd ChildGroups::make(const std::string& name) {
  if (!exist()) return {};
  const fs::path group = folder_ / name;
  if (::mkdir(group.c_str(), 0755) != 0) {
    if (errno != EEXIST) return {};
    kill(name);
  }
  return UniqueFd(::open((group / "cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
}

void ChildGroups::kill(const std::string& name) const {
  if (!exist()) return;
  // Without the file (Linux before 5.14) the processes' own signals have to do.
  (void)write_word(folder_ / name / "cgroup.kill", "1");
}

void ChildGroups::end(const std::string& name) {
  if (!exist()) return;
  kill(name);
  ended_.push_back(name);
  remove_empty();
}

void ChildGroups::remove_empty() {
  std::erase_if(ended_, [this](const std::string& name) {
    return ::rmdir((folder_ / name).c_str()) == 0 || errno == ENOENT;
  });
}

}  // namespace plimsoll
