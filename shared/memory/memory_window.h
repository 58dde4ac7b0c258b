// MemoryWindow: the ends of what each option may be, with everything else as it is.
#pragma once

#include <string>

#include "shared/memory/memory_budget.h"
#include "shared/memory/memory_fit.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/option_set.h"

namespace plimsoll {

MemoryWindow find_window(const FitInputs& in, const MemoryBudget& budget);

// Of a plan that does not fit: the binding term and rank, the arithmetic, each option that takes
// part with its value and where that came from, and what would work.
std::string refusal_message(const FitInputs& in, const MemoryBudget& budget,
                            const OptionSet& options);

}  // namespace plimsoll
