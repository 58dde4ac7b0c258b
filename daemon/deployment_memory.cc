// The part of the deployment that holds what ranks measured against the plan.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/deployment.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr std::size_t kDriftsSaidMax = 256;  // lines of one deployment's life

void add_measured(const Cohort& cohort, std::vector<RankMeasured>& ranks) {
  for (std::size_t rank = 0; rank < cohort.workers().size(); ++rank) {
    const std::optional<Measured>& measured = cohort.workers()[rank].measured;
    if (!measured) continue;
    ranks.push_back({cohort.index(), static_cast<std::int64_t>(rank), *measured});
  }
}

// Beside what a process that says hello has taken already.
Bytes still_needed(const MemoryPlan& plan) {
  Bytes needed = 0;
  for (const RankPlan& rank : plan.ranks) needed += rank.total() - rank.bytes(Term::process);
  return needed;
}

}  // namespace

// The first word of the first rank, before anything is loaded: what was available when the plan was
// made may be gone. CPU ranks share the machine's memory, so one of them knows for all.
void Deployment::confirm(const Hello& hello, Actions& out) {
  if (confirmation_ != Confirmation::none || plan().memory.devices != "cpu") return;
  const Bytes needed = still_needed(plan().memory);
  if (hello.free == 0 || hello.free >= needed) {
    confirmation_ = Confirmation::done;
    return;
  }
  confirmation_ = Confirmation::asked;
  for (Cohort& cohort : cohorts_) cohort.hold();
  short_of_ = fmt::format("{} are available now, and {} were planned", format_bytes(hello.free),
                          format_bytes(needed));
  out.emplace_back(
      Log{LogLevel::warning, short_of_ + ": planning once more before anything is loaded"});
  plan_question_ = ++questions_;
  out.emplace_back(MakePlan{plan().options, quarantine_, plan_question_});
}

// On devices each rank knows for its own, once its context is there: all are heard before any of
// them loads.
void Deployment::confirm_devices(TimePoint now, Actions& out) {
  if (confirmation_ == Confirmation::done || plan().memory.devices == "cpu") return;
  if (!quarantine_.empty()) {
    // What ranks find goes by places in the plan's machine, and without some of its devices it may
    // be another one: then nothing is planned again, nor is an answer waited for. What is short is
    // found when all have loaded.
    confirmation_ = Confirmation::done;
    for (Cohort& cohort : cohorts_) cohort.release(now, out);
    return;
  }
  if (confirmation_ == Confirmation::asked || cohorts_.empty()) return;
  if (!std::ranges::all_of(cohorts_, &Cohort::all_opened)) return;
  MakePlan again{plan().options, quarantine_};
  std::vector<RankMeasured> contexts;
  for (const Cohort& cohort : cohorts_) {
    for (std::size_t rank = 0; rank < cohort.workers().size(); ++rank) {
      const auto place = static_cast<std::size_t>(cohort.index() * plan().tp) + rank;
      const RankPlan& planned = plan().memory.ranks[place];
      const Opened& found = *cohort.workers()[rank].opened;
      again.found.push_back({planned.device, found.context, found.free});
      contexts.push_back({cohort.index(), planned.rank, {}});
      contexts.back().measured.terms[term_name(Term::context)] = found.context;
      const Bytes expected = planned.budget - planned.bytes(Term::context);
      if (!short_of_.empty() || expected - found.free <= kDeviceTolerance) continue;
      short_of_ = fmt::format(
          "rank {}.{} has {} free with its context of {} up, and {} with one of {} were planned",
          planned.replica, planned.rank, format_bytes(found.free), format_bytes(found.context),
          format_bytes(expected), format_bytes(planned.bytes(Term::context)));
    }
  }
  if (short_of_.empty()) {
    confirmation_ = Confirmation::done;
    for (Cohort& cohort : cohorts_) cohort.release(now, out);
    return;
  }
  confirmation_ = Confirmation::asked;
  again.question = plan_question_ = ++questions_;
  report(reconcile(plan().memory, contexts, plan().kv_blocks).drifts, out);
  drifts_before_ = drifts_;
  out.emplace_back(
      Log{LogLevel::warning, short_of_ + ": planning once more before anything is loaded"});
  out.emplace_back(std::move(again));
}

void Deployment::replanned(const Result<LaunchPlan>& plan, TimePoint now, Actions& out) {
  if (awaits_replicas_) return replace_all(plan, now, out);
  confirmation_ = Confirmation::done;
  if (stop_phase_ != StopPhase::none) return;  // nothing is to be loaded any more
  if (!plan) return fail(plan.error(), now, out);
  if (plan->refusal) {
    return fail({plan->refusal->code,
                 plan->refusal->message + "\nBefore anything was loaded, " + short_of_ + "."},
                now, out);
  }
  // Its workers are there: what was left to auto stays as it was.
  if (plan->tp != this->plan().tp || plan->dp != this->plan().dp) {
    return fail(
        does_not_fit(fmt::format("{}: with that, tp {} x dp {} would be chosen and not tp "
                                 "{} x dp {}; start it again",
                                 short_of_, plan->tp, plan->dp, this->plan().tp, this->plan().dp)),
        now, out);
  }
  plans_.front().plan = *plan;
  use_router_plan(plans_.front(), out);
  for (Cohort& cohort : cohorts_) cohort.release(now, out);
  settle(now, out);
}

// The second phase: what was planned against what the ranks measured. The first time, when all
// replicas have loaded, so that all get the same; a replica that starts again gets no more than the
// others. Whether the deployment ends here.
bool Deployment::commit_loaded(TimePoint now, Actions& out) {
  for (PlanInUse& use : plans_) {
    if (commit_loaded(use, now, out)) return true;
  }
  return false;
}

bool Deployment::commit_loaded(PlanInUse& use, TimePoint now, Actions& out) {
  std::vector<Cohort*> waiting;
  std::vector<RankMeasured> ranks;
  bool are_all = true;
  for (Cohort& cohort : cohorts_) {
    if (&cohort.plan() != &use.plan) continue;
    are_all = are_all && cohort.awaits_commit();
    if (!cohort.awaits_commit()) continue;
    waiting.push_back(&cohort);
    add_measured(cohort, ranks);
  }
  if (waiting.empty() || (!use.kv_blocks && !are_all)) return false;
  Reconciled result = reconcile(use.plan.memory, ranks, use.kv_blocks.value_or(use.plan.kv_blocks));
  report(std::move(result.drifts), out);
  if (result.refusal && !has_served_) {
    fail(*result.refusal, now, out);
    return true;
  }
  if (result.shrunk) out.emplace_back(Log{LogLevel::warning, *result.shrunk});
  if (!use.kv_blocks && !result.refusal) {
    use.kv_blocks = result.kv_blocks;
    settle_context(use, result.context_length, out);
  }
  for (Cohort* cohort : waiting) {
    if (result.refusal) {
      cohort->refuse(*result.refusal, now, out);
    } else {
      cohort->commit(result.kv_blocks, use.plan.memory.decisions.context_length, now, out);
    }
  }
  return false;
}

// What requests are let in for from here on: it is lowered no further, since they may be as long.
void Deployment::settle_context(PlanInUse& use, Tokens context_length, Actions& out) {
  PlanDecisions& decisions = use.plan.memory.decisions;
  decisions.context_length_min = 0;
  if (context_length >= decisions.context_length) return;
  decisions.context_length = context_length;
  use.plan.context_length = context_length;
  // While it changes, the router keeps to what fits both.
  if (context_length <= plan().context_length) use_router_plan(use, out);
}

// What came with the first step (lazily made buffers, graphs) is too late for KV, not for a word.
void Deployment::compare_ready(Actions& out) {
  for (const Cohort& cohort : cohorts_) {
    if (cohort.state() != CohortState::ready) continue;
    std::int64_t& compared = compared_[cohort.replica()];
    if (std::exchange(compared, cohort.incarnation()) == cohort.incarnation()) continue;
    std::vector<RankMeasured> ranks;
    add_measured(cohort, ranks);
    report(reconcile(cohort.plan().memory, ranks, cohort.kv_blocks()).drifts, out);
  }
}

void Deployment::report(std::vector<Drift> drifts, Actions& out) {
  for (const Drift& drift : drifts) {
    // A rank that starts again measures the same once more, in slightly other numbers.
    bool is_news = false;
    for (const std::string& rank : drift.ranks) {
      if (drifts_said_.size() >= kDriftsSaidMax) break;
      is_news = drifts_said_.insert(drift.term + " " + rank).second || is_news;
    }
    // Less than planned is no trouble for anybody.
    const bool is_more = drift.measured > drift.planned;
    const LogLevel level = is_more ? LogLevel::warning : LogLevel::info;
    if (is_news) out.emplace_back(Log{level, "drift of " + drift_line(drift)});
  }
  if (drifts.empty()) return;
  drifts_ = std::move(drifts);
  drifts_.insert(drifts_.end(), drifts_before_.begin(), drifts_before_.end());
}

}  // namespace plimsoll
