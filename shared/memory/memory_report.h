// MemoryReport: a plan as a table for people.
#pragma once

#include <string>

#include "shared/memory/memory_plan.h"

namespace plimsoll {

// Verdict, decisions, one ledger for each kind of rank (ranks with equal rows share one), notes.
// Sizes in KiB to GiB. Without a refusal's text: see MemoryPlan::refusal.
std::string memory_report(const MemoryPlan& plan);

// "--device-memory from 212.0 MiB; --context-length up to 8,192", for a plan that fits.
std::string window_report(const MemoryWindow& window);

}  // namespace plimsoll
