// WindowText: what an option may be, in words.
#pragma once

#include <string>
#include <vector>

#include "shared/memory/memory_plan.h"

namespace plimsoll {

// "0.772 to 0.934"; sizes in whole MiB inside the exact ends, where there are such.
// REQUIRES: not empty.
std::string window_range(const OptionWindow& window);

// "window: --mem-fraction-static 0.772 to 0.934", then what binds at each end. An empty one says
// what each end would need.
std::vector<std::string> window_lines(const OptionWindow& window);

}  // namespace plimsoll
