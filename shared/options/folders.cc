#include "shared/options/folders.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}

// The XDG specification: a relative path is ignored.
fs::path first_absolute(const fs::path& wanted, const fs::path& fallback) {
  return wanted.is_absolute() ? wanted : fallback;
}

}  // namespace

FolderUser this_user() {
  return {.uid = ::geteuid(),
          .home = variable("HOME"),
          .xdg_config_home = variable("XDG_CONFIG_HOME"),
          .xdg_runtime_dir = variable("XDG_RUNTIME_DIR"),
          .xdg_state_home = variable("XDG_STATE_HOME")};
}

Folders folders_of(const FolderUser& user) {
  if (user.uid == 0) {
    return {.config_file = "/etc/plimsoll/plimsoll.conf",
            .runtime = "/run/plimsoll",
            .state = "/var/lib/plimsoll"};
  }
  const std::string own = fmt::format("plimsoll-{}", user.uid);
  const fs::path home = first_absolute(user.home, fs::path("/tmp") / own);
  const fs::path runtime = user.xdg_runtime_dir.is_absolute() ? user.xdg_runtime_dir / "plimsoll"
                                                              : fs::path("/tmp") / own;
  return {.config_file =
              first_absolute(user.xdg_config_home, home / ".config") / "plimsoll" / "plimsoll.conf",
          .runtime = runtime,
          .state = first_absolute(user.xdg_state_home, home / ".local" / "state") / "plimsoll"};
}

Folders default_folders() { return folders_of(this_user()); }

fs::path runtime_folder(const Options& options) {
  return options.runtime_dir.empty() ? default_folders().runtime : fs::path(options.runtime_dir);
}

fs::path state_folder(const Options& options) {
  return options.state_dir.empty() ? default_folders().state : fs::path(options.state_dir);
}

Status make_private_folder(const fs::path& folder) {
  std::error_code failure;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), failure);
  if (::mkdir(folder.c_str(), 0700) == 0) return {};
  if (errno != EEXIST) {
    const std::string why = failure ? failure.message() : std::strerror(errno);
    return unavailable(
        fmt::format("make the folder {}: {}; give another with --runtime-dir or --state-dir",
                    folder.string(), why));
  }
  struct stat found = {};
  // Followed only where the link is ours or root's: otherwise a neighbour could lead us anywhere.
  if (::lstat(folder.c_str(), &found) != 0 ||
      (S_ISLNK(found.st_mode) && found.st_uid != 0 && found.st_uid != ::geteuid())) {
    return unavailable(fmt::format("the folder {} is a link of another user", folder.string()));
  }
  if (::stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return unavailable(fmt::format("{} is not a folder", folder.string()));
  }
  if (found.st_uid != ::geteuid() && ::geteuid() != 0) {
    return unavailable(
        fmt::format("the folder {} belongs to user {}; give another with "
                    "--runtime-dir or --state-dir",
                    folder.string(), found.st_uid));
  }
  return {};
}

}  // namespace plimsoll
