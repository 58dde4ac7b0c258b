#include "shared/memory/plan_refusal.h"

#include <limits>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/rank_ledger.h"
#include "shared/options/option_value.h"

namespace plimsoll {

NeediestRank neediest_rank(const FitInputs& in, const Fit& fit) {
  NeediestRank neediest{.index = 0, .bytes = 0, .missing = std::numeric_limits<Bytes>::min()};
  for (std::size_t i = 0; i < in.ranks.size(); ++i) {
    const Bytes bytes = rank_bytes(in, in.ranks[i], fit);
    const Bytes missing = bytes - in.ranks[i].budget;
    if (missing > neediest.missing) neediest = {i, bytes, missing};
  }
  return neediest;
}

std::string option_line(const OptionSet& options, std::string_view name, std::string_view decided) {
  const OptionRow& row = *find_option(name);
  const Origin origin = options.origin(name);
  return fmt::format("  {} = {}{} ({}{}{})", name, option_text(options.values, row), decided,
                     source_name(origin.source), origin.place.empty() ? "" : " ", origin.place);
}

std::string sum_text(const std::vector<PlanRow>& rows) {
  std::vector<std::string> sum;
  for (const PlanRow& row : rows) {
    if (row.bytes <= 0) continue;
    sum.push_back(fmt::format("{} {}", term_name(row.term), format_bytes(row.bytes)));
  }
  return join(sum, " + ");
}

std::string refusal_message(const PlanQuestion& question, const PlanProblem& problem,
                            const MemoryWindow& window) {
  return problem.fit.on_devices ? device_refusal(question, problem, window)
                                : cpu_refusal(question, problem, window);
}

}  // namespace plimsoll
