// ChildGroups: a control group (cgroup v2) of its own for each child, so that whatever a child has
// started ends with it, however it detached itself.
//
// Only where the service manager has delegated a group to the daemon (Delegate=yes). Elsewhere
// there are none, and a child's own process is all that is ended.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// The daemon's own v2 group, in the mounted tree; empty where there is no such mount. `root` stands
// before /proc and the mount point, for tests.
std::filesystem::path own_group(const std::filesystem::path& root = "/");

class ChildGroups {
 public:
  ChildGroups() = default;
  // Moves the daemon into a group below, so that the delegated one has only groups. Errors:
  // unavailable, where it may not be written; then there are no groups.
  static Result<ChildGroups> take(const std::filesystem::path& delegated);
  // By the environment: nothing where no service manager has delegated a group to this process.
  static ChildGroups of_service();

  bool exist() const { return !folder_.empty(); }
  // A new group; writing "0" to the descriptor moves the writer into it. An empty descriptor where
  // there are no groups. What is left of that name is ended first.
  UniqueFd make(const std::string& name);
  // Everything in it, at once. It is removed when nothing is left in it, by this or a later call.
  void end(const std::string& name);
  void kill(const std::string& name) const;
  void remove_empty();

 private:
  explicit ChildGroups(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  std::vector<std::string> ended_;  // not removed yet
};

}  // namespace plimsoll
