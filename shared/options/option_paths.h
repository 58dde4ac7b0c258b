// OptionPaths: files that options name, whatever folder a process works in.
#pragma once

#include <string>

#include "shared/options/options.h"

namespace plimsoll {

std::string absolute_path(const std::string& path);  // "" stays
// Every option that is a path and can be changed, from the folder that this process works in. So
// that one file has one name: in the daemon, which may work elsewhere, and in what is remembered of
// a launch.
void make_paths_absolute(Options& options);

}  // namespace plimsoll
