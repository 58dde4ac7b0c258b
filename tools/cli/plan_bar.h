// PlanBar: a rank's ledger as a bar, its rows to scale: shares of cells, a line of text, an image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_report.h"

namespace plimsoll {

// What a bar shows of a rank: related rows together, largest first but KV and what is free last.
struct BarPart {
  std::string name;
  Bytes bytes = 0;
  std::int64_t cells = 0;
  bool is_free = false;
};

// Cells of all parts together are `cells`, or more where the rows exceed the budget (then the bar
// is as much longer). A part below half a cell has none and stands in the legend only.
std::vector<BarPart> bar_parts(const RankPlan& rank, std::int64_t cells);

struct BarStyle {
  std::int64_t cells = 64;
  bool has_colour = false;
};

// Title, bar with its budget marked, legend.
std::string plan_bar(const RankGroup& group, BarStyle style);

// All kinds of ranks, as an SVG file's content.
std::string plan_svg(const MemoryPlan& plan);

}  // namespace plimsoll
