// LedgerLines: what a rank logs when its memory is committed: each row of its plan in the words of
// `plimsoll plan --explain`, and what it has come to.
#pragma once

#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/memory/measured.h"
#include "shared/memory/memory_plan.h"

namespace plimsoll {

// `planned` and `committed` are KV blocks.
std::vector<std::string> ledger_lines(const RankPlan& plan, const Measured& measured,
                                      Blocks planned, Blocks committed);

}  // namespace plimsoll
