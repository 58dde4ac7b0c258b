// Assumption: `--assume TERM=BYTES`: a figure that replaces a term of the plan.
//
// With it any reported case can be replayed: `--assume weights=72.29GiB --assume free=94GiB`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

struct Assumption {
  std::string term;  // "weights"; "free" is what a device has free before weights are loaded
  Bytes bytes = 0;   // of each rank
};

// "weights=72.29GiB,free=94GiB". Empty text: none. Of two figures for a term the last counts.
// Errors: Code::invalid: no `=`, a figure without a unit, a term that there is not.
Result<std::vector<Assumption>> parse_assumptions(std::string_view text);

}  // namespace plimsoll
