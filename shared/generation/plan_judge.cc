#include "shared/generation/plan_judge.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/memory/plan_problem.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

struct Outlook {
  bool fits = false;
  Bytes kv_room = 0;  // what the tightest rank has for KV, negative where nothing fits
  Bytes kv = 0;       // planned, of rank 0
  Blocks blocks = 0;
  std::optional<Bytes> rule;  // what the option that sizes KV gives, fit or not
  std::map<Term, Bytes> beside;
  std::string error;  // of options that are none
};

// What the rule of SGLang or vLLM gives the tightest rank; nullopt: no rule sizes KV.
std::optional<Bytes> rule_of(const PlanJudgement& facts, const OptionSet& options) {
  const Result<PlanProblem> problem =
      make_problem(facts.machine, facts.model, options.values, facts.draft);
  if (!problem || problem->fit.rule == KvRule::demand) return std::nullopt;
  const StepShape step = decide_fit(problem->fit).step;
  std::optional<Bytes> least;
  for (const RankShape& rank : problem->fit.ranks) {
    const Bytes kv = kv_bytes_by_rule(problem->fit, rank, step);
    least = std::min(least.value_or(kv), kv);
  }
  return least;
}

Outlook outlook_of(const PlanJudgement& facts, const OptionSet& options) {
  const Result<MemoryPlan> plan = plan_memory(facts.machine, facts.model, options, facts.draft);
  Outlook outlook;
  if (!plan) {
    outlook.error = plan.error().message;
    return outlook;
  }
  outlook.fits = !plan->refusal.has_value();
  outlook.blocks = plan->decisions.kv_blocks;
  outlook.rule = rule_of(facts, options);
  bool is_first = true;
  for (const RankPlan& rank : plan->ranks) {
    const Bytes room = rank.budget - (rank.total() - rank.bytes(Term::kv));
    outlook.kv_room = is_first ? room : std::min(outlook.kv_room, room);
    if (is_first) {
      for (const PlanRow& row : rank.rows) outlook.beside[row.term] = row.bytes;
      outlook.kv = outlook.beside[Term::kv];
      outlook.beside.erase(Term::kv);
    }
    is_first = false;
  }
  return outlook;
}

std::string size_text(Bytes bytes) { return figure_text(static_cast<double>(bytes), "bytes"); }

// "KV 10.43 GiB -> -20.59 GiB" where an option says how much, else what there is room for.
std::string kv_change(const Outlook& was, const Outlook& is) {
  if (!is.error.empty()) return is.error.substr(0, is.error.find('\n'));
  if (was.rule || is.rule) {
    return fmt::format("KV {} -> {}", size_text(was.rule.value_or(was.fits ? was.kv : was.kv_room)),
                       size_text(is.rule.value_or(is.fits ? is.kv : is.kv_room)));
  }
  return fmt::format("room for KV {} -> {}", size_text(was.kv_room), size_text(is.kv_room));
}

// "graphs 2.41 GiB -> 808.4 MiB": of what is beside KV the row that differs most; empty: none does.
std::string beside_change(const Outlook& was, const Outlook& is) {
  std::string text;
  Bytes most = 0;
  for (const auto& [term, bytes] : is.beside) {
    const auto before = was.beside.find(term);
    const Bytes old = before == was.beside.end() ? 0 : before->second;
    if (std::abs(bytes - old) <= most) continue;
    most = std::abs(bytes - old);
    text = fmt::format("{} {} -> {}", term_name(term), size_text(old), size_text(bytes));
  }
  return text;
}

// Between two plans that both fit.
std::optional<Reason> effect_of(const Outlook& was, const Outlook& is) {
  if (was.kv == is.kv && was.blocks == is.blocks) {
    std::string beside = beside_change(was, is);
    if (beside.empty()) return std::nullopt;
    return Reason{beside + "; KV is the same", 0.2};
  }
  const double share =
      was.kv > 0 ? std::abs(static_cast<double>(was.kv - is.kv)) / static_cast<double>(was.kv) : 1;
  return Reason{fmt::format("KV of rank 0 {} -> {}, {} -> {}", size_text(was.kv), size_text(is.kv),
                            figure_text(static_cast<double>(was.blocks), "blocks"),
                            figure_text(static_cast<double>(is.blocks), "blocks")),
                is.kv < was.kv ? 0.5 + std::min(share, 1.0) * 0.4 : 0.5};
}

// The same change on both sides: `was` and `is` after all others, `first` and `then` before them.
struct Sides {
  const Outlook& was;
  const Outlook& is;
  const Outlook& first;
  const Outlook& then;
};

std::optional<Reason> reason_of(const Sides& sides, const Difference& change) {
  const Outlook& was = sides.was;
  const Outlook& is = sides.is;
  if (was.fits && !is.fits) {
    return Reason{
        fmt::format("{}: with {} it would fit", kv_change(was, is), change.before.value_or("none")),
        1.0};
  }
  if (!was.fits && is.fits) {
    return Reason{"it is what makes the plan fit: " + kv_change(was, is), 0.3};
  }
  if (is.fits) return effect_of(was, is);
  // Refused either way, and then what is auto is as low as it goes: what it does is seen where the
  // plan still fitted.
  if (sides.first.fits && !sides.then.fits) {
    return Reason{kv_change(sides.first, sides.then) + ": by itself it would not have fitted",
                  0.95};
  }
  if (sides.first.fits) {
    std::optional<Reason> effect = effect_of(sides.first, sides.then);
    if (effect) effect->text += "; it does not fit either way";
    if (effect) effect->suspicion = std::min(effect->suspicion, 0.5);
    return effect;
  }
  if (was.kv_room == is.kv_room) return std::nullopt;
  return Reason{kv_change(was, is) + "; it does not fit either way",
                is.kv_room < was.kv_room ? 0.9 : 0.3};
}

}  // namespace

LaunchJudge plan_judge(const PlanJudgement& facts) {
  const Outlook is = outlook_of(facts, facts.after);
  const Outlook first = outlook_of(facts, facts.before);
  return [facts, is, first](const Difference& change) -> std::optional<Reason> {
    if (change.kind != DifferenceKind::option) return std::nullopt;
    const OptionRow* row = find_option(change.name);
    if (row == nullptr) return std::nullopt;
    OptionSet undone = facts.after;
    OptionSet alone = facts.before;
    // It was this text that option_text() made, so it is one that is read.
    if (!set_option(undone.values, *row, option_text(facts.before.values, *row)) ||
        !set_option(alone.values, *row, option_text(facts.after.values, *row)) ||
        undone.values.model != facts.after.values.model) {
      return std::nullopt;
    }
    const Outlook was = outlook_of(facts, undone);
    const Outlook then = outlook_of(facts, alone);
    std::optional<Reason> reason = reason_of({was, is, first, then}, change);
    if (reason) {
      reason->suspicion =
          std::max(reason->suspicion, usual_suspicion(change.kind, change.name) * 0.5);
    }
    return reason;
  };
}

}  // namespace plimsoll
