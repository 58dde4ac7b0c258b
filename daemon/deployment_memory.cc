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
    ranks.push_back({cohort.replica(), static_cast<std::int64_t>(rank), *measured});
  }
}

}  // namespace

// The second phase: what was planned against what the ranks measured. The first time, when all
// replicas have loaded, so that all get the same; a replica that starts again gets no more than the
// others. Whether the deployment ends here.
bool Deployment::commit_loaded(TimePoint now, Actions& out) {
  const auto awaits = [](const Cohort& cohort) { return cohort.awaits_commit(); };
  if (std::none_of(cohorts_.begin(), cohorts_.end(), awaits)) return false;
  if (!kv_blocks_ && !std::all_of(cohorts_.begin(), cohorts_.end(), awaits)) return false;
  std::vector<RankMeasured> ranks;
  for (const Cohort& cohort : cohorts_) {
    if (cohort.awaits_commit()) add_measured(cohort, ranks);
  }
  Reconciled result = reconcile(plan_.memory, ranks, kv_blocks_.value_or(plan_.kv_blocks));
  report(std::move(result.drifts), out);
  if (result.refusal && !has_served_) {
    fail(*result.refusal, now, out);
    return true;
  }
  if (result.shrunk) out.emplace_back(Log{LogLevel::warning, *result.shrunk});
  if (!kv_blocks_ && !result.refusal) kv_blocks_ = result.kv_blocks;
  for (Cohort& cohort : cohorts_) {
    if (!cohort.awaits_commit()) continue;
    if (result.refusal) {
      cohort.refuse(*result.refusal, now, out);
    } else {
      cohort.commit(result.kv_blocks, now, out);
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
    report(reconcile(plan_.memory, ranks, cohort.kv_blocks()).drifts, out);
  }
}

void Deployment::report(std::vector<Drift> drifts, Actions& out) {
  for (const Drift& drift : drifts) {
    const std::string line = drift_line(drift);
    if (drifts_said_.size() >= kDriftsSaidMax || !drifts_said_.insert(line).second) continue;
    out.emplace_back(Log{LogLevel::warning, "drift of " + line});
  }
  if (!drifts.empty()) drifts_ = std::move(drifts);
}

}  // namespace plimsoll
