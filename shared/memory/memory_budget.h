// MemoryBudget: how much one rank may use, and on whose word.
#pragma once

#include <optional>
#include <string>

#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/options/options.h"

namespace plimsoll {

struct MemoryBudget {
  Bytes per_rank = 0;
  std::string source;      // "--device-memory", "half of what is available"
  Bytes per_rank_max = 0;  // that --device-memory could give: everything available
  Bytes available = 0;     // on the machine or within the cgroup, the lesser
  std::string available_source;
  std::optional<std::string> note;  // --device-memory is more than there is
};

MemoryBudget decide_budget(const Machine& machine, const Options& options);

}  // namespace plimsoll
