#include "shared/memory/plan_refusal.h"

#include <array>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_window.h"
#include "shared/memory/rank_ledger.h"
#include "shared/memory/window_text.h"
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

const char* rule_option(KvRule rule) {
  switch (rule) {
    case KvRule::static_fraction:
      return "mem-fraction-static";
    case KvRule::utilization:
      return "gpu-memory-utilization";
    case KvRule::bytes:
      return "kv-cache-bytes";
    case KvRule::demand:
      break;
  }
  return "max-total-tokens";
}

std::string rule_text(const OptionSet& options, KvRule rule) {
  const std::string_view name = rule_option(rule);
  return fmt::format("{} {}", name, option_text(options.values, *find_option(name)));
}

std::string direction(const MemoryWindow& window, KvRule rule, std::string_view word) {
  const OptionWindow* own = window.find(rule_option(rule));
  if (own == nullptr || !own->is_empty) return fmt::format("{} it", word);
  return fmt::format("no value of {} works", rule_option(rule));
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

std::string trust_line(const std::vector<PlanRow>& rows) {
  constexpr std::array<Trust, 5> kOrder = {Trust::computed, Trust::measured, Trust::learned,
                                           Trust::assumed, Trust::margin};
  std::vector<std::string> groups;
  for (const Trust trust : kOrder) {
    std::vector<std::string> terms;
    for (const PlanRow& row : rows) {
      if (row.trust == trust && row.bytes > 0) terms.emplace_back(term_name(row.term));
    }
    if (terms.empty()) continue;
    groups.push_back(fmt::format("{}: {}", trust_name(trust), join(terms, ", ")));
  }
  return "  " + join(groups, "; ");
}

std::vector<std::string> rule_arithmetic(const FitInputs& in, const RankShape& rank,
                                         const StepShape& step) {
  const TermBytes bytes = ledger_bytes(in, rank, step);
  const std::string kv = format_bytes(kv_bytes_by_rule(in, rank, step));
  if (in.rule == KvRule::static_fraction) {
    const Bytes base = in.free_before_weights;
    return {"  kv = free after weights - free before weights x (1 - fraction)",
            fmt::format("     = {} - {} x (1 - {}) = {}", format_bytes(base - static_bytes(bytes)),
                        format_bytes(base), format_fraction(in.fraction), kv)};
  }
  if (in.rule != KvRule::utilization) return {};
  const Bytes total =
      rank.device == nullptr ? in.free_before_weights : rank.device->total_to_share();
  const Bytes taken = bytes.sum() - start_bytes(bytes) - bytes[Term::margin];
  return {fmt::format("  kv = {} x utilization - what a worker takes after its start",
                      rank.device == nullptr ? "budget" : "device total"),
          fmt::format("     = {} x {} - {} = {}", format_bytes(total), format_fraction(in.fraction),
                      format_bytes(taken), kv)};
}

std::vector<std::string> other_windows(const MemoryWindow& window, std::string_view without) {
  std::vector<std::string> lines;
  std::vector<std::string> empty;
  for (const OptionWindow& option : window.options) {
    if (option.option == without) continue;
    if (option.is_empty) {
      empty.push_back("--" + option.option);
      continue;
    }
    lines.push_back(fmt::format("  window: --{} {} (low end: {}; high end: {})", option.option,
                                window_range(option), option.binds_low, option.binds_high));
  }
  if (!empty.empty()) {
    lines.push_back(
        fmt::format("  empty windows, no value alone is enough: {}", join(empty, ", ")));
  }
  return lines;
}

std::string refusal_message(const PlanQuestion& question, const PlanProblem& problem,
                            const MemoryWindow& window) {
  return problem.fit.on_devices ? device_refusal(question, problem, window)
                                : cpu_refusal(question, problem, window);
}

}  // namespace plimsoll
