// The part of the deployment that holds what ranks measured against the plan.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/deployment.h"

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

}  // namespace

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
  if (!use.kv_blocks && !result.refusal) use.kv_blocks = result.kv_blocks;
  for (Cohort* cohort : waiting) {
    if (result.refusal) {
      cohort->refuse(*result.refusal, now, out);
    } else {
      cohort->commit(result.kv_blocks, now, out);
    }
  }
  return false;
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
  if (!drifts.empty()) drifts_ = std::move(drifts);
}

}  // namespace plimsoll
