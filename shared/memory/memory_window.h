// MemoryWindow: the ends of what each option may be, with everything else as it is.
#pragma once

#include <string>

#include "shared/memory/memory_plan.h"
#include "shared/memory/plan_changes.h"
#include "shared/memory/plan_problem.h"

namespace plimsoll {

// `problem` is that of the question.
MemoryWindow find_window(const PlanQuestion& question, const PlanProblem& problem);

// What `auto` would do where an option sizes KV; unset where it would not fit either.
std::optional<AutoChoice> find_auto_choice(const FitInputs& in);

}  // namespace plimsoll
