#include "shared/generation/plan_judge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

struct Outlook {
  bool fits = false;
  Bytes kv_room = 0;  // what the tightest rank has for KV, negative where nothing fits
  Bytes kv = 0;       // planned, of rank 0
  Blocks blocks = 0;
  std::string refusal;
};

Outlook outlook_of(const Result<MemoryPlan>& plan) {
  Outlook outlook;
  if (!plan) {
    outlook.refusal = plan.error().message;
    return outlook;
  }
  outlook.fits = !plan->refusal.has_value();
  outlook.blocks = plan->decisions.kv_blocks;
  bool is_first = true;
  for (const RankPlan& rank : plan->ranks) {
    const Bytes room = rank.budget - (rank.total() - rank.bytes(Term::kv));
    outlook.kv_room = is_first ? room : std::min(outlook.kv_room, room);
    if (is_first) outlook.kv = rank.bytes(Term::kv);
    is_first = false;
  }
  return outlook;
}

std::string size_text(Bytes bytes) { return figure_text(static_cast<double>(bytes), "bytes"); }

// From `was` (with the option as before) to `is`.
std::optional<Reason> reason_of(const Outlook& was, const Outlook& is, const Difference& change) {
  if (was.fits && !is.fits) {
    const std::string room =
        is.refusal.empty()
            ? fmt::format("room for KV {} -> {}", size_text(was.kv_room), size_text(is.kv_room))
            : is.refusal.substr(0, is.refusal.find('\n'));
    return Reason{fmt::format("{}: with {} it would fit", room, change.before.value_or("none")),
                  1.0};
  }
  if (!was.fits && is.fits) {
    return Reason{fmt::format("it is what makes the plan fit: room for KV {} -> {}",
                              size_text(was.kv_room), size_text(is.kv_room)),
                  0.3};
  }
  if (!is.fits) {
    if (was.kv_room == is.kv_room) return std::nullopt;
    return Reason{fmt::format("room for KV {} -> {}; it does not fit either way",
                              size_text(was.kv_room), size_text(is.kv_room)),
                  is.kv_room < was.kv_room ? 0.9 : 0.3};
  }
  if (was.kv == is.kv && was.blocks == is.blocks) return std::nullopt;
  const double share =
      was.kv > 0 ? std::abs(static_cast<double>(was.kv - is.kv)) / static_cast<double>(was.kv) : 1;
  return Reason{fmt::format("KV of rank 0 {} -> {}, {} -> {}", size_text(was.kv), size_text(is.kv),
                            figure_text(static_cast<double>(was.blocks), "blocks"),
                            figure_text(static_cast<double>(is.blocks), "blocks")),
                is.kv < was.kv ? 0.5 + std::min(share, 1.0) * 0.4 : 0.5};
}

}  // namespace

LaunchJudge plan_judge(const PlanJudgement& facts) {
  const Outlook is = outlook_of(plan_memory(facts.machine, facts.model, facts.after, facts.draft));
  return [facts, is](const Difference& change) -> std::optional<Reason> {
    if (change.kind != DifferenceKind::option) return std::nullopt;
    const OptionRow* row = find_option(change.name);
    if (row == nullptr) return std::nullopt;
    OptionSet one = facts.after;
    // It was this text that option_text() made, so it is one that is read.
    const Status set = set_option(one.values, *row, option_text(facts.before.values, *row));
    if (!set || one.values.model != facts.after.values.model) return std::nullopt;
    const Outlook was = outlook_of(plan_memory(facts.machine, facts.model, one, facts.draft));
    std::optional<Reason> reason = reason_of(was, is, change);
    if (reason) {
      reason->suspicion =
          std::max(reason->suspicion, usual_suspicion(change.kind, change.name) * 0.5);
    }
    return reason;
  };
}

}  // namespace plimsoll
