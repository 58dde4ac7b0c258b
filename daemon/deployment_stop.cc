// The part of the deployment that ends it.

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "daemon/deployment.h"

namespace plimsoll {
namespace {

// Without requests a worker has nothing to finish; it only has to take the message.
constexpr Duration kLeaveTime = seconds(2);
constexpr Duration kTerminateTime = seconds(1);

std::int64_t milliseconds_until(TimePoint deadline, TimePoint now) {
  return std::max<std::int64_t>(std::chrono::ceil<milliseconds>(deadline - now).count(), 0);
}

}  // namespace

void Deployment::signal_all(int signal, TimePoint now, Actions& out) {
  router_.end(signal, out);
  signal_workers(signal, now, out);
}

void Deployment::signal_workers(int signal, TimePoint now, Actions& out) {
  for (Cohort& cohort : cohorts_) cohort.end(signal, now, out);
}

void Deployment::fail(Error error, TimePoint now, Actions& out) {
  failure_ = std::move(error);
  is_followed_ = setup_.can_go_back;
  terminate(now, out);
}

// Without waiting for requests: whoever waits for one is told by the router, which then leaves.
void Deployment::terminate(TimePoint now, Actions& out) {
  state_ = DeploymentState::draining;
  stop_phase_ = StopPhase::terminated;
  stop_at_ = now + kTerminateTime;
  if (router_.state() == RouterState::listening) {
    publish(out);
    router_.drain({.deadline = milliseconds(0), .is_followed = is_followed_}, out);
    signal_workers(SIGTERM, now, out);
  } else {
    signal_all(SIGTERM, now, out);
  }
  settle_stop(now, out);
}

void Deployment::stop(StopHow how, TimePoint now, Actions& out) {
  if (stop_phase_ != StopPhase::none) return;
  is_followed_ = how.is_followed;
  const milliseconds timeout = plan().options.values.shutdown_timeout;
  if (!has_served_ || timeout.count() == 0) return terminate(now, out);
  state_ = DeploymentState::draining;
  stop_phase_ = StopPhase::router;
  stop_at_ = now + timeout + kFarewellTime;
  publish(out);
  router_.drain({.deadline = timeout, .is_followed = is_followed_}, out);
  settle_stop(now, out);
}

void Deployment::kill(TimePoint now, Actions& out) {
  if (!has_processes()) return;
  state_ = DeploymentState::draining;
  stop_phase_ = StopPhase::killed;
  stop_at_ = now + kTerminateTime;
  signal_all(SIGKILL, now, out);
}

void Deployment::settle_stop(TimePoint now, Actions& out) {
  if (stop_phase_ == StopPhase::router && router_.has_process()) {
    // The router still has requests to finish, and those of a replica that dies now go on in its
    // next start.
    restart_due(now, out);
    (void)commit_loaded(now, out);  // one that has served is not ended by what it finds
    publish(out);
  }
  if (stop_phase_ == StopPhase::router && !router_.has_process()) {
    stop_phase_ = StopPhase::workers;
    stop_at_ = std::min(stop_at_, now + kLeaveTime);
    for (Cohort& cohort : cohorts_) {
      cohort.drain(milliseconds(milliseconds_until(stop_at_, now)), now, out);
    }
  }
  if (!has_processes()) {
    // Whatever waits for its next start gets its final state.
    signal_all(SIGTERM, now, out);
    state_ = failure_ ? DeploymentState::failed : DeploymentState::stopped;
    return;
  }
  if (now < stop_at_) return;
  stop_at_ = now + kTerminateTime;
  const bool was_orderly = stop_phase_ == StopPhase::router || stop_phase_ == StopPhase::workers;
  if (was_orderly) {
    out.emplace_back(
        Log{LogLevel::warning,
            fmt::format("processes that have not left in {} ms are terminated (--shutdown-timeout)",
                        plan().options.values.shutdown_timeout.count())});
  }
  stop_phase_ = was_orderly ? StopPhase::terminated : StopPhase::killed;
  signal_all(was_orderly ? SIGTERM : SIGKILL, now, out);
}

}  // namespace plimsoll
