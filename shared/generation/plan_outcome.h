// PlanOutcome: what a launch was planned to hold against what it held, for every launch that is
// kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/units.h"
#include "shared/generation/generation_record.h"

namespace plimsoll {

// Of the rank that was most off, by bytes; KV and margin are on neither side.
struct PlanOutcome {
  std::int64_t generation = 0;
  Outcome outcome = Outcome::launching;
  std::string rank;  // "0.3"
  Bytes planned = 0;
  Bytes measured = 0;
  std::string term;  // that was most off there
  Bytes term_planned = 0;
  Bytes term_measured = 0;
};

// Nothing where the launch did not get as far as to measure.
std::optional<PlanOutcome> plan_outcome(const GenerationRecord& record);
// "rank 0.1 planned 78.2 MiB, measured 78.9 MiB (+0.9 %); most off: process, ...".
std::string plan_outcome_line(const PlanOutcome& outcome);
Json plan_outcome_json(const PlanOutcome& outcome);

// Of launches with the same model and layout, newest first.
std::vector<PlanOutcome> earlier_outcomes(const Generations& all, const OptionSet& options);

}  // namespace plimsoll
