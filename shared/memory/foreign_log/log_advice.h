// LogAdvice: why a launch ended as its log says, and what to change.
#pragma once

#include "shared/memory/foreign_log/log_case.h"
#include "shared/memory/foreign_log/log_report.h"

namespace plimsoll {

// Fills in `why` and `advice`; the window of the explanation must be there.
void add_log_advice(const LogCase& c, LogExplanation& explanation);

}  // namespace plimsoll
