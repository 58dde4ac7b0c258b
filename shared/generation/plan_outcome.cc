#include "shared/generation/plan_outcome.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <ranges>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_report.h"

namespace plimsoll {
namespace {

using Sizes = std::map<std::string, Bytes, std::less<>>;

Sizes planned_sizes(const RankPlan& rank) {
  Sizes sizes;
  for (const PlanRow& row : rank.rows) {
    if (row.term != Term::kv && row.term != Term::margin) sizes[term_name(row.term)] += row.bytes;
  }
  return sizes;
}

// What has no row in a plan is the process.
Sizes measured_sizes(const Json& rank) {
  Sizes sizes;
  const Json* bytes = rank.find("bytes");
  if (bytes == nullptr || !bytes->is_object()) return sizes;
  for (const auto& [name, value] : bytes->as_object()) {
    if (!value.is_integer() || name == term_name(Term::kv)) continue;
    sizes[term_from_name(name) ? name : std::string(term_name(Term::process))] += value.as_int();
  }
  return sizes;
}

Bytes sum_of(const Sizes& sizes) {
  Bytes sum = 0;
  for (const auto& [term, bytes] : sizes) sum += bytes;
  return sum;
}

PlanOutcome compare(const Sizes& planned, const Sizes& measured) {
  PlanOutcome outcome{
      .rank = {}, .planned = sum_of(planned), .measured = sum_of(measured), .term = {}};
  Sizes all = planned;
  for (const auto& [term, bytes] : measured) all.try_emplace(term, 0);
  for (const auto& [term, unused] : all) {
    const auto size_in = [&name = term](const Sizes& sizes) {
      const auto found = sizes.find(name);
      return found == sizes.end() ? Bytes{0} : found->second;
    };
    const Bytes before = size_in(planned);
    const Bytes after = size_in(measured);
    const Bytes most = std::abs(outcome.term_measured - outcome.term_planned);
    if (!outcome.term.empty() && std::abs(after - before) <= most) continue;
    outcome.term = term;
    outcome.term_planned = before;
    outcome.term_measured = after;
  }
  return outcome;
}

bool same_launch(const Options& a, const Options& b) {
  return a.model == b.model && a.tp == b.tp && a.dp == b.dp && a.ep == b.ep &&
         a.devices == b.devices && a.machine == b.machine && a.draft_model == b.draft_model;
}

}  // namespace

std::optional<PlanOutcome> plan_outcome(const GenerationRecord& record) {
  if (!record.measured.is_array()) return std::nullopt;
  const Result<MemoryPlan> plan = memory_plan_from_json(record.plan);
  if (!plan) return std::nullopt;
  std::optional<PlanOutcome> worst;
  const auto& measured = record.measured.as_array();
  for (std::size_t i = 0; i < std::min(measured.size(), plan->ranks.size()); ++i) {
    const Sizes sizes = measured_sizes(measured[i]);
    if (sizes.empty()) continue;
    PlanOutcome one = compare(planned_sizes(plan->ranks[i]), sizes);
    if (worst && std::abs(one.measured - one.planned) <= std::abs(worst->measured - worst->planned))
      continue;
    one.generation = record.number;
    one.outcome = record.outcome;
    one.rank = fmt::format("{}.{}", plan->ranks[i].replica, plan->ranks[i].rank);
    worst = std::move(one);
  }
  return worst;
}

std::string plan_outcome_line(const PlanOutcome& outcome) {
  const double off = static_cast<double>(outcome.measured - outcome.planned);
  std::string line = fmt::format("rank {} planned {} beside KV, measured {}", outcome.rank,
                                 format_bytes(outcome.planned), format_bytes(outcome.measured));
  if (outcome.planned > 0) {
    line += fmt::format(" ({:+.1f} %)", off / static_cast<double>(outcome.planned) * 100);
  }
  if (outcome.term_measured == outcome.term_planned) return line;
  return line + fmt::format("; most off: {}, {} for {}", outcome.term,
                            format_bytes(outcome.term_measured),
                            format_bytes(outcome.term_planned));
}

Json plan_outcome_json(const PlanOutcome& outcome) {
  return Json::object({{"generation", outcome.generation},
                       {"outcome", outcome_name(outcome.outcome)},
                       {"rank", outcome.rank},
                       {"planned", outcome.planned},
                       {"measured", outcome.measured},
                       {"term", outcome.term},
                       {"term_planned", outcome.term_planned},
                       {"term_measured", outcome.term_measured}});
}

std::vector<PlanOutcome> earlier_outcomes(const Generations& all, const OptionSet& options) {
  std::vector<PlanOutcome> outcomes;
  for (const GenerationRecord& record : std::views::reverse(all.records)) {
    const Result<OptionSet> launched = option_set_from_json(record.options);
    if (!launched || !same_launch(launched->values, options.values)) continue;
    if (std::optional<PlanOutcome> one = plan_outcome(record)) outcomes.push_back(std::move(*one));
  }
  return outcomes;
}

}  // namespace plimsoll
