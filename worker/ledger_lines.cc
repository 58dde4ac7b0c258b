#include "worker/ledger_lines.h"

#include <string_view>

#include <fmt/format.h>

#include "shared/memory/memory_report.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {

std::vector<std::string> ledger_lines(const RankPlan& plan, const Measured& measured,
                                      Blocks planned, Blocks committed) {
  std::vector<std::string> lines;
  for (const PlanRow& row : plan.rows) {
    std::string came_to;
    const auto found = measured.terms.find(std::string_view(term_name(row.term)));
    if (row.term == Term::kv) {
      came_to = fmt::format("; committed {} of {} blocks = {} B", grouped(committed),
                            grouped(planned), grouped(measured.kv_committed));
    } else if (found != measured.terms.end()) {
      came_to = fmt::format("; measured {} B", grouped(found->second));
    }
    lines.push_back(row_line(row) + came_to);
  }
  return lines;
}

}  // namespace plimsoll
