#include "daemon/instance_lock.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/generation/abandoned.h"
#include "shared/options/folders.h"

namespace plimsoll {
namespace {

// Between opening the file and locking it, its last owner may have removed it; then once more.
constexpr int kTriesMax = 1000;
constexpr int kTryEveryMs = 1;

// Whether a daemon has it, and not somebody who only asks whether one does (has_daemon()).
bool is_daemons(int fd) {
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return true;
  (void)::flock(fd, LOCK_UN);
  (void)::poll(nullptr, 0, kTryEveryMs);
  return false;
}

bool is_same_file(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

std::string owner_of(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size() - 1, 0);
  const std::string pid(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return pid.empty() ? "another plimsolld" : "another plimsolld (pid " + pid + ")";
}

// With the lock held, nobody listens on these any more.
void remove_leftovers(const std::filesystem::path& runtime) {
  std::error_code ignored;  // what cannot be removed is reported by whoever wants the name
  for (const auto& entry : std::filesystem::directory_iterator(runtime, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_socket(ignored) && (name == "control" || name.starts_with("replica-"))) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

}  // namespace

Result<InstanceLock> InstanceLock::take(const std::filesystem::path& runtime) {
  InstanceLock lock = TRY(take(runtime, {"runtime", "lock", "--runtime-dir", ""}));
  remove_leftovers(runtime);
  return lock;
}

Result<InstanceLock> InstanceLock::take_state(const std::filesystem::path& state) {
  const std::string file = state_lock_file(state).filename().string();
  return take(state, {"state", file.c_str(), "--state-dir", " --runtime-dir ITS-OWN"});
}

Result<InstanceLock> InstanceLock::take(const std::filesystem::path& folder, const Use& use) {
  TRY(make_private_folder(folder));
  const std::filesystem::path path = folder / use.file;
  for (int i = 0; i < kTriesMax; ++i) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) {
      return unavailable(fmt::format("open {}: {}", path.string(), std::strerror(errno)));
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK && i + 1 < kTriesMax && !is_daemons(fd.get())) continue;
      return unavailable(
          fmt::format("{} uses the {} folder {}: end it with `plimsoll stop --all{}`, or choose "
                      "another {} (each deployment has folders of its own)",
                      owner_of(fd.get()), use.folder, folder.string(), use.reached, use.option));
    }
    if (!is_same_file(fd.get(), path)) continue;
    const std::string pid = std::to_string(::getpid());
    const bool is_written =
        ::ftruncate(fd.get(), 0) == 0 &&
        ::pwrite(fd.get(), pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
    if (!is_written) {
      return unavailable(fmt::format("write {}: {}", path.string(), std::strerror(errno)));
    }
    return InstanceLock(std::move(fd), path);
  }
  return unavailable(fmt::format("lock {}: it is being replaced all the time", path.string()));
}

InstanceLock::~InstanceLock() {
  if (fd_) ::unlink(path_.c_str());
}

}  // namespace plimsoll
