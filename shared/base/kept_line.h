// KeptLine: how a child begins a line that the daemon keeps in its log file and does not pass on to
// its own stderr: what one wants to find of each rank, and not to read eight times at every start.
#pragma once

#include <string_view>

namespace plimsoll {

constexpr std::string_view kKeptOnly = "ledger: ";

}  // namespace plimsoll
