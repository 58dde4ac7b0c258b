// PlanRefusal: the one message of a plan that does not fit.
#pragma once

#include <string>

#include "shared/memory/memory_plan.h"
#include "shared/memory/plan_changes.h"
#include "shared/memory/plan_problem.h"

namespace plimsoll {

// The binding term and rank, the arithmetic, each figure with where it came from, the window of
// the option that decides, what auto would choose, and what would work.
std::string refusal_message(const PlanQuestion& question, const PlanProblem& problem,
                            const MemoryWindow& window);

// cpu_refusal.cc: of ranks on CPUs. device_refusal.cc: of ranks on devices.
std::string cpu_refusal(const PlanQuestion& question, const PlanProblem& problem,
                        const MemoryWindow& window);
std::string device_refusal(const PlanQuestion& question, const PlanProblem& problem,
                           const MemoryWindow& window);

struct NeediestRank {
  std::size_t index = 0;  // in FitInputs::ranks
  Bytes bytes = 0;
  Bytes missing = 0;  // beyond its budget
};
NeediestRank neediest_rank(const FitInputs& in, const Fit& fit);
// "  device-memory = 64MiB (flag --device-memory)".
std::string option_line(const OptionSet& options, std::string_view name, std::string_view decided);
// "weights 72.29 GiB + graphs 1.20 GiB + ...".
std::string sum_text(const std::vector<PlanRow>& rows);

}  // namespace plimsoll
