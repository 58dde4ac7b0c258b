// LogWindow: how far the fraction of a log may move.
#pragma once

#include "shared/memory/foreign_log/log_case.h"
#include "shared/memory/foreign_log/log_report.h"

namespace plimsoll {

FractionWindow log_window(const LogCase& c);

}  // namespace plimsoll
