// LayoutWindow: how many ranks and replicas would work, with everything else as it is.
//
// Neither can be searched: uneven heads and unequal devices may make a larger number worse. So each
// is tried, and where those that work are several runs, the one that holds the present value, or
// the nearest, is the window.
#pragma once

#include "shared/memory/memory_plan.h"
#include "shared/memory/plan_changes.h"
#include "shared/memory/plan_problem.h"

namespace plimsoll {

// Appends `tp` and `dp`.
void add_layout_windows(const PlanQuestion& question, const PlanProblem& problem,
                        MemoryWindow& window);

}  // namespace plimsoll
