// MemoryReport: a plan as a table for people.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/memory/memory_plan.h"

namespace plimsoll {

// Ranks that have the same rows: the first of them stands for all.
struct RankGroup {
  const RankPlan* first = nullptr;
  std::vector<const RankPlan*> members;
};
// In order of their first ranks. REQUIRES: plan outlives the result.
std::vector<RankGroup> group_ranks(const MemoryPlan& plan);
// "ranks 0.0, 1.0 and 6 more" (replica.rank).
std::string group_title(const RankGroup& group);
// "8 heads, 1 KV head on NVIDIA H200 (140.40 GiB)": what the rank holds, and of which device.
std::string rank_text(const RankPlan& rank);

// Verdict and decisions, without the ledgers.
std::string memory_summary(const MemoryPlan& plan);
// One ledger for each kind of rank (ranks with equal rows share one), then notes. Sizes in KiB to
// GiB.
std::string memory_ledgers(const MemoryPlan& plan);
// Both. Without a refusal's text: see MemoryPlan::refusal.
std::string memory_report(const MemoryPlan& plan);

// "--device-memory from 212.0 MiB; --context-length up to 8,192", for a plan that fits.
std::string window_report(const MemoryWindow& window);

// "logits = 34,865,152 B = 33.3 MiB: 64 rows x ... (computed, in phase buffers)"
std::string row_line(const PlanRow& row);
// What a term takes on each kind of rank: bytes, formula with its numbers, trust, phase.
std::string explain_term(const MemoryPlan& plan, Term term);
// {"version", "term", "phase", "ranks": [{"ranks": ["0.0"], "bytes", "formula", "trust",
// "budget"}]}
Json explain_term_json(const MemoryPlan& plan, Term term);
std::optional<Term> term_from_name(std::string_view name);

}  // namespace plimsoll
