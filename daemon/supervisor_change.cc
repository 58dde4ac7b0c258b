// The part of the supervisor that changes a deployment while it serves.

#include <algorithm>

#include <fmt/format.h>

#include "daemon/supervisor.h"

namespace plimsoll {

Result<ChangePath> Supervisor::path_of_change() const {
  const OptionDiff diff = diff_options(options_.values, operation_.target.values);
  const auto running = std::ranges::count_if(deployment_->cohorts(), [](const Cohort& cohort) {
    return cohort.state() != CohortState::failed;
  });
  return choose_path({.diff = diff,
                      .present = deployment_->has_served() ? &deployment_->plan() : nullptr,
                      .next = &*operation_.plan,
                      .wanted = operation_.wanted_path,
                      .running = running});
}

Duration Supervisor::predicted_pause(ChangePath path) const {
  const Duration hold = deployment_->hold_estimate();
  if (path == ChangePath::hold) return hold;
  if (path != ChangePath::restart) return Duration(0);
  // The router starts beside the replicas.
  const std::chrono::duration<double> start(operation_.previous->record.started_in_s);
  return std::max(hold, std::chrono::duration_cast<Duration>(start));
}

// The plan of a change that is only asked about; nothing was touched.
void Supervisor::finish_dry_run() {
  const LaunchPlan& plan = *operation_.plan;
  Json result = operation_.result;
  result.set("plan", plan.plan_json);
  if (!is_running()) return finish(0, "it fits", result);
  const double pause = to_seconds(predicted_pause(operation_.path));
  result.set("path", change_path_name(operation_.path)).set("predicted_pause_s", pause);
  std::string how;
  switch (operation_.path) {
    case ChangePath::none:
    case ChangePath::live:
      break;
    case ChangePath::beside:
      how = "new replicas would start beside the ones whose place they take, without a pause";
      break;
    case ChangePath::rolling:
      how = "one replica at a time would start again while the others serve, without a pause";
      break;
    case ChangePath::hold:
      how = fmt::format(
          "running requests would be finished, and new ones held for about {:.1f} s while the "
          "replicas start again",
          pause);
      break;
    case ChangePath::restart:
      how = fmt::format(
          "the deployment would start again: running requests are finished, new ones wait about "
          "{:.1f} s",
          pause);
      break;
  }
  finish(0, "it fits; " + how, std::move(result));
}

// What has never served is nothing to go back to.
void Supervisor::remember_previous() {
  if (operation_.previous || !deployment_->has_served()) return;
  operation_.previous = Previous{options_, deployment_->plan(), generation_, record_};
}

void Supervisor::begin_change(TimePoint now) {
  remember_previous();
  const LaunchPlan& plan = *operation_.plan;
  const Duration pause = predicted_pause(operation_.path);
  operation_.result.set("predicted_pause_s", to_seconds(pause));
  operation_.is_in_place = true;
  operation_.is_launched = true;
  options_ = plan.options;
  generation_ = ++generations_;
  begin_record(now);
  launched_at_ = now;
  reported_percent_ = -1;
  for (const std::string& note : plan.notes) log(LogLevel::info, "plan: " + note);
  log(LogLevel::info,
      fmt::format("{}: generation {} takes the place of {} by the path {}, {}", operation_name(),
                  generation_, operation_.previous->generation, change_path_name(operation_.path),
                  pause > Duration(0)
                      ? fmt::format("with a pause of about {:.1f} s", to_seconds(pause))
                      : "without a pause"));
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
  deployment_->change(plan, operation_.path, now, out_);
}

// It moves, serves, is watched for a while and then counts; or what was there comes back.
void Supervisor::watch_change(TimePoint now) {
  using State = Deployment::ChangeState;
  const State state = deployment_->change_state();
  const bool is_serving = deployment_->state() == DeploymentState::serving;
  const bool is_back = state == State::reverting || state == State::reverted;
  if (is_back && !operation_.failure) change_failed(now);
  if (state == State::reverted && is_serving) {
    deployment_->end_change(out_);
    if (operation_.pause) serving_since_ = now;
    return target_serves(now);
  }
  if (state != State::moved) return;
  if (!operation_.watch) {
    // Also where it does not serve at once: it may never do.
    operation_.watch = ChangeWatch(now);
    log(LogLevel::info,
        fmt::format("generation {} {}; it is watched for {:.0f} s", generation_,
                    is_serving ? "serves" : "is there", to_seconds(ChangeWatch::kWatchTime)));
    return;
  }
  bool is_committed = false;
  if (std::optional<Error> why = look_at_target(now, is_committed)) {
    deployment_->revert(std::move(*why), now, out_);
    return change_failed(now);
  }
  if (!is_committed) return;
  deployment_->end_change(out_);
  target_serves(now);
}

// Likewise of a deployment that was started anew, where there is something to go back to.
void Supervisor::watch_target(TimePoint now) {
  if (!operation_.previous || operation_.failure) return target_serves(now);
  if (operation_.verdict) return;  // it is being taken back
  if (!operation_.watch) {
    serving_since_ = now;
    operation_.watch = ChangeWatch(now);
    return;
  }
  bool is_committed = false;
  operation_.verdict = look_at_target(now, is_committed);
  if (operation_.verdict) return begin_stop({.is_followed = true}, now);
  if (is_committed) target_serves(now);
}

// Why the target, which serves or has served, is to be taken back.
std::optional<Error> Supervisor::look_at_target(TimePoint now, bool& is_committed) {
  const std::optional<LastFault>& fault = deployment_->last_fault();
  const bool is_of_replica = fault && fault->replica >= 0 && fault->at >= operation_.watch->since();
  ChangeWatch::Seen seen{.is_serving = deployment_->state() == DeploymentState::serving,
                         .is_dying = deployment_->is_dying()};
  if (is_of_replica) seen.replica_fault_at = fault->at;
  const ChangeWatch::Verdict verdict = operation_.watch->look(seen, now);
  is_committed = verdict == ChangeWatch::Verdict::commit;
  if (verdict != ChangeWatch::Verdict::take_back) return std::nullopt;
  const double watched = to_seconds(now - operation_.watch->since());
  operation_.watch.reset();
  const std::string why = reason();
  const std::string what =
      is_of_replica
          ? fmt::format("replica {}: {}", fault->replica, fault->message)
          : fmt::format("it does not serve any more, it is {}{}{}",
                        deployment_state_name(deployment_->state()), why.empty() ? "" : ": ", why);
  return unavailable(fmt::format("it failed within {:.0f} s of serving: {}",
                                 std::max(watched, to_seconds(ChangeWatch::kWatchTime)), what));
}

void Supervisor::change_failed(TimePoint now) {
  const Error& error = *deployment_->change_failure();
  end_record(Outcome::failed, error.message, now);
  log(LogLevel::error, fmt::format("generation {} failed: {}; going back to generation {}",
                                   generation_, error.message, operation_.previous->generation));
  operation_.failure = error;
  restore_quarantine();
  operation_.watch.reset();
  operation_.given.reset();
  generation_ = operation_.previous->generation;
  options_ = operation_.previous->options;
  resume_record(operation_.previous->record);
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
}

}  // namespace plimsoll
