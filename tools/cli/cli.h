// Cli: from the words after `plimsoll` to an exit code.
#pragma once

#include <span>
#include <string>

#include "tools/cli/verb.h"

namespace plimsoll {

int run_cli(std::span<const std::string> words, Console& console);

}  // namespace plimsoll
