// PlanRefusal: the one message of a plan that does not fit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
// The option that says how much KV there is: "mem-fraction-static"; with its value; and what to do
// with it, "raise it", unless no value of it works.
const char* rule_option(KvRule rule);
std::string rule_text(const OptionSet& options, KvRule rule);
std::string direction(const MemoryWindow& window, KvRule rule, std::string_view word);
// "  device-memory = 64MiB (flag --device-memory)".
std::string option_line(const OptionSet& options, std::string_view name, std::string_view decided);
// "weights 72.29 GiB + graphs 1.20 GiB + ...".
std::string sum_text(const std::vector<PlanRow>& rows);
// "  computed: weights, tables; assumed: graphs".
std::string trust_line(const std::vector<PlanRow>& rows);
// "     = 21.71 GiB - 94.00 GiB x (1 - 0.550) = -20.59 GiB" and the formula before it; nothing for
// a rule that is bytes.
std::vector<std::string> rule_arithmetic(const FitInputs& in, const RankShape& rank,
                                         const StepShape& step);
// "  window: --context-length 1 to 1856 (low end: ...; high end: ...)" of each option but those
// named, where there is any.
std::vector<std::string> other_windows(const MemoryWindow& window, std::string_view without);

}  // namespace plimsoll
