#include "shared/generation/abandoned.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>

#include "shared/base/unique_fd.h"

namespace plimsoll {

std::filesystem::path state_lock_file(const std::filesystem::path& state) {
  return state / "state.lock";
}

bool has_daemon(const std::filesystem::path& state) {
  const UniqueFd fd(::open(state_lock_file(state).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno != ENOENT;
  // It goes with the descriptor, at once.
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
}

bool end_abandoned(GenerationRecord& record) {
  // One that has served before comes back after a change that failed.
  if (record.outcome == Outcome::launching && !record.known_good) {
    record.outcome = Outcome::failed;
    record.message = "its daemon ended while it was being started";
  } else if (record.outcome == Outcome::serving || record.outcome == Outcome::launching) {
    record.outcome = Outcome::stopped;
    record.message = "its daemon was killed";
  } else {
    return false;
  }
  return true;
}

}  // namespace plimsoll
