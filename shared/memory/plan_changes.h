// PlanChanges: the cheapest changes that would make a refused plan fit, with their numbers.
#pragma once

#include <string>
#include <vector>

#include "shared/machine/machine.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/plan_problem.h"
#include "shared/model/model_spec.h"
#include "shared/options/options.h"

namespace plimsoll {

struct PlanQuestion {
  const Machine& machine;
  const ModelSpec& model;
  const OptionSet& options;
  const ModelSpec* draft = nullptr;
};

// "--kv-cache-dtype fp8: 35,136 B a token instead of 70,272; KV holds 41,216 tokens". Only of ranks
// on devices; each line alone makes the plan fit. Options that the window is about come from there.
std::vector<std::string> find_changes(const PlanQuestion& question, const PlanProblem& problem,
                                      const MemoryWindow& window);

}  // namespace plimsoll
