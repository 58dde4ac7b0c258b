// Folders: where configuration, sockets and records live: by user, or as the options say.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/options/options.h"

namespace plimsoll {

struct Folders {
  std::filesystem::path config_file;  // /etc/plimsoll/plimsoll.conf, else XDG
  std::filesystem::path runtime;      // /run/plimsoll, else $XDG_RUNTIME_DIR/plimsoll
  std::filesystem::path state;        // /var/lib/plimsoll, else $XDG_STATE_HOME/plimsoll
};

// What decides over the folders; XDG variables that are unset, empty or relative do not count.
struct FolderUser {
  unsigned uid = 0;
  std::filesystem::path home = {};
  std::filesystem::path xdg_config_home = {}, xdg_runtime_dir = {}, xdg_state_home = {};
};
FolderUser this_user();

Folders folders_of(const FolderUser& user);
Folders default_folders();
std::filesystem::path runtime_folder(const Options& options);
std::filesystem::path state_folder(const Options& options);

// Makes a folder with mode 0700 where there is none. Errors: unavailable; a name that is no folder,
// or one under a shared folder such as /tmp that belongs to somebody else.
Status make_private_folder(const std::filesystem::path& folder);

}  // namespace plimsoll
