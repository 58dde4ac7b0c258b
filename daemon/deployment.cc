#include "daemon/deployment.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "shared/control/codec.h"

namespace plimsoll {

const char* deployment_state_name(DeploymentState state) {
  static constexpr const char* kNames[] = {"planned",  "loading", "warming", "serving",
                                           "draining", "stopped", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

Deployment::Deployment(LaunchPlan plan, Setup setup, Shared shared)
    : plans_({PlanInUse{std::move(plan)}}),
      setup_(std::move(setup)),
      incarnations_(shared.incarnations),
      questions_(shared.questions),
      strangers_(shared.strangers),
      quarantine_(shared.quarantine),
      router_(
          {.plan = &plans_.front().plan, .seed = setup_.seed, .starts_max = setup_.starts_max}) {
  for (std::int64_t replica = 0; replica < plans_.front().plan.dp; ++replica) {
    add_cohort({.replica = replica, .index = replica}, plans_.front(), setup_.starts_max);
    if (plans_.front().plan.memory.devices != "cpu") cohorts_.back().hold_opened();
  }
}

void Deployment::add_cohort(const Seat& seat, const PlanInUse& plan, int starts_max) {
  cohorts_.emplace_back(
      Cohort::Setup{.plan = &plan.plan,
                    .replica = seat.replica,
                    .index = seat.index,
                    .runtime = setup_.runtime,
                    .seed = setup_.seed + 1 + static_cast<std::uint64_t>(seat.replica),
                    .starts_max = starts_max});
}

Cohort* Deployment::find_cohort(std::int64_t replica) {
  const auto found = std::ranges::find(cohorts_, replica, &Cohort::replica);
  return found == cohorts_.end() ? nullptr : &*found;
}

const Cohort* Deployment::find_cohort(std::int64_t replica) const {
  const auto found = std::ranges::find(cohorts_, replica, &Cohort::replica);
  return found == cohorts_.end() ? nullptr : &*found;
}

Cohort* Deployment::cohort_of(const ChildId& child) {
  if (child.kind != ChildId::Kind::worker) return nullptr;
  Cohort* cohort = find_cohort(child.replica);
  return cohort != nullptr && cohort->incarnation() == child.incarnation ? cohort : nullptr;
}

bool Deployment::has_processes() const {
  return router_.has_process() || std::any_of(cohorts_.begin(), cohorts_.end(),
                                              [](const Cohort& c) { return c.has_processes(); });
}

Progress Deployment::progress() const {
  Progress sum;
  sum.phase = deployment_state_name(state_);
  bool is_known = true;
  for (const Cohort& cohort : cohorts_) {
    const std::vector<Bytes>& planned = cohort.plan().weight_bytes;
    auto rank = static_cast<std::size_t>(cohort.index() * cohort.plan().tp);
    for (const Worker& worker : cohort.workers()) {
      // What a rank says itself counts; before that, what was planned for it.
      Bytes total = worker.bytes_total;
      if (total == 0 && rank < planned.size()) total = planned[rank];
      sum.done += worker.bytes_done;
      sum.total += total;
      is_known = is_known && total > 0;
      ++rank;
    }
  }
  if (!is_known) sum.total = 0;  // a part would be taken for the whole
  return sum;
}

// ---- events ----

void Deployment::start(TimePoint now, Actions& out) {
  state_ = DeploymentState::loading;
  for (Cohort& cohort : cohorts_) start_cohort(cohort, now, out);
  router_.start(++incarnations_, now, out);
  hold_until_ = now + plan().options.values.hold_deadline;
}

void Deployment::child_started(const ChildId& child, std::int64_t pid, TimePoint now,
                               Actions& out) {
  if (child.kind == ChildId::Kind::router) {
    router_.child_started(pid);
  } else if (Cohort* cohort = cohort_of(child)) {
    cohort->child_started(child.rank, pid, now);
  }
  settle(now, out);
}

void Deployment::spawn_failed(const ChildId& child, const Error& error, TimePoint now,
                              Actions& out) {
  if (child.kind == ChildId::Kind::router) {
    router_.spawn_failed(error, now, out);
  } else if (Cohort* cohort = cohort_of(child)) {
    cohort->spawn_failed(child.rank, error, now, out);
  }
  settle(now, out);
}

void Deployment::child_dying(const ChildId& child, TimePoint now, Actions& out) {
  if (Cohort* cohort = cohort_of(child)) cohort->child_dying(child.rank, now, out);
  settle(now, out);
}

void Deployment::child_exited(const ChildId& child, const Ending& ending, TimePoint now,
                              Actions& out) {
  if (child.kind == ChildId::Kind::router) {
    router_.child_exited(ending, now, out);
  } else if (Cohort* cohort = cohort_of(child)) {
    cohort->child_exited(child.rank, ending, now, out);
  }
  settle(now, out);
}

// Who says this hello: one of our own, by the pid that it was started with.
std::optional<ChildId> Deployment::hello(const std::string& peer, const Hello& hello) {
  if (hello.instance != setup_.instance) return std::nullopt;
  ChildId child;
  if (hello.role == "router") {
    if (!router_.has_process() || router_.pid() != hello.pid) return std::nullopt;
    child = {.kind = ChildId::Kind::router, .incarnation = router_.incarnation()};
  } else {
    const Cohort* cohort = find_cohort(hello.replica);
    if (cohort == nullptr || hello.rank < 0 || hello.rank >= std::ssize(cohort->workers())) {
      return std::nullopt;
    }
    const Worker& worker = cohort->workers()[static_cast<std::size_t>(hello.rank)];
    if (!worker.is_alive || worker.pid != hello.pid) return std::nullopt;
    child = {.kind = ChildId::Kind::worker,
             .replica = hello.replica,
             .rank = hello.rank,
             .incarnation = cohort->incarnation()};
  }
  // Its predecessors, which can say nothing more, make room.
  std::erase_if(peers_, [&](const auto& known) {
    const ChildId& other = known.second;
    return other.kind == child.kind && other.replica == child.replica && other.rank == child.rank;
  });
  peers_[peer] = child;
  strangers_.acquaint(peer);
  return child;
}

void Deployment::said(const std::string& peer, const Message& message, TimePoint now,
                      Actions& out) {
  if (const auto* words = std::get_if<Hello>(&message)) {
    const std::optional<ChildId> child = hello(peer, *words);
    if (!child) {
      if (!strangers_.is_news(peer)) return;
      out.emplace_back(Log{LogLevel::warning,
                           fmt::format("refused a hello of process {}, which is no {} of this "
                                       "deployment",
                                       words->pid, words->role == "router" ? "router" : "worker")});
    } else if (child->kind == ChildId::Kind::router) {
      router_.hello(peer, now, out);
      // The answer to a probe may be lost with its former connection.
      if (std::exchange(is_probing_, false)) probe_at_ = now;
      if (proof_.sequence != 0) proof_.forget(now);
      if (change_ && change_->proof.sequence != 0) change_->proof.forget(now);
      // And so may the word that it is to end.
      if (stop_phase_ == StopPhase::router) {
        const Duration until = stop_at_ - kFarewellTime - now;
        const auto left = std::chrono::ceil<milliseconds>(std::max(until, Duration(0)));
        out.emplace_back(Send{peer, Drain{left.count(), is_followed_}});
      }
    } else {
      confirm(*words, out);
      cohort_of(*child)->hello(peer, *words, now, out);
    }
    return settle(now, out);
  }
  const auto known = peers_.find(peer);
  if (known == peers_.end()) {
    if (!strangers_.is_news(peer)) return;
    out.emplace_back(Log{LogLevel::warning,
                         fmt::format("control: dropped a '{}' of an unknown process, and will drop "
                                     "what else it says",
                                     message_type(message))});
    return;
  }
  if (known->second.kind == ChildId::Kind::router) {
    if (known->second.incarnation != router_.incarnation()) return;
    router_.said(message, now, out);
    if (const auto* result = std::get_if<ProbeResult>(&message)) probe_result(*result, now, out);
  } else if (Cohort* cohort = cohort_of(known->second)) {
    cohort->said(known->second.rank, message, now, out);
  }
  settle(now, out);
}

void Deployment::note_marks(const std::vector<ReplicaMarks>& replicas) {
  for (const ReplicaMarks& marks : replicas) {
    Cohort* cohort =
        cohort_of({.replica = marks.replica, .rank = 0, .incarnation = marks.incarnation});
    if (cohort != nullptr) cohort->note_marks(marks.ranks);
  }
}

void Deployment::tick(TimePoint now, Actions& out) {
  for (Cohort& cohort : cohorts_) cohort.tick(now, out);
  router_.tick(now, out);
  settle(now, out);
}

// ---- decisions ----

// One that has not proved itself is ready for probes only; but of a deployment that ends nobody
// asks for more than to finish.
bool Deployment::is_ready(const Cohort& cohort) const {
  const bool is_excused = stop_phase_ == StopPhase::router;
  return cohort.state() == CohortState::ready && (cohort.is_proved() || is_excused);
}

const char* Deployment::replica_state(const Cohort& cohort) const {
  const bool is_unproved = cohort.state() == CohortState::ready && !is_ready(cohort);
  return is_unproved ? "proving" : cohort_state_name(cohort.state());
}

bool Deployment::is_dying() const {
  return std::any_of(cohorts_.begin(), cohorts_.end(),
                     [](const Cohort& c) { return c.state() == CohortState::dying; });
}

bool Deployment::all_ready() const {
  return std::all_of(cohorts_.begin(), cohorts_.end(),
                     [](const Cohort& c) { return c.state() == CohortState::ready; });
}

void Deployment::note_faults(TimePoint now) {
  if (const std::optional<RootCause> cause = router_.take_cause()) {
    last_fault_ = LastFault{cause->message, -1, -1, now};
  }
  for (Cohort& cohort : cohorts_) {
    if (const std::optional<RootCause> cause = cohort.take_cause()) {
      last_fault_ = LastFault{cause->message, cohort.replica(), cause->rank, now};
    }
  }
}

// What is to be done follows from the present states alone, so it is looked at after each event.
void Deployment::settle(TimePoint now, Actions& out) {
  note_faults(now);
  if (stop_phase_ != StopPhase::none) return settle_stop(now, out);
  step_change(now, out);
  replace_lost(out);
  if (!awaits_replicas_ && check_failed(now, out)) return;
  restart_due(now, out);
  confirm_devices(now, out);
  if (commit_loaded(now, out)) return;
  compare_ready(out);

  const bool any_ready = std::any_of(cohorts_.begin(), cohorts_.end(),
                                     [this](const Cohort& c) { return is_ready(c); });
  const bool any_there = std::any_of(cohorts_.begin(), cohorts_.end(), [](const Cohort& c) {
    return c.state() == CohortState::ready;
  });
  const bool is_up =
      router_.state() == RouterState::listening && (has_served_ ? any_there : all_ready());
  if (!is_up) {
    is_proved_ = false;
    is_probing_ = false;
    probes_failed_ = 0;
    const bool is_loading = std::any_of(cohorts_.begin(), cohorts_.end(), [](const Cohort& c) {
      return c.state() != CohortState::warming && c.state() != CohortState::ready;
    });
    state_ = is_loading ? DeploymentState::loading : DeploymentState::warming;
  } else if (!is_proved_ || !any_ready) {
    is_proved_ = is_proved_ && any_ready;
    state_ = DeploymentState::warming;
  } else {
    state_ = DeploymentState::serving;
    has_served_ = true;
  }
  // Who waits in the listening socket can be served by either generation: let in, only by this one.
  holds_clients_ = setup_.can_go_back && !has_served_ && now < hold_until_;
  publish(out);
  // While it changes, those that stay prove that another router works; who arrives is asked alone.
  const bool any_stays = std::any_of(cohorts_.begin(), cohorts_.end(), [this](const Cohort& c) {
    return is_ready(c) && !is_arriving(c);
  });
  const bool is_asked_whole = !is_proved_ && (any_ready || !has_served_);
  if (is_up && is_asked_whole && (!is_moving() || any_stays)) probe(now, out);
  prove_restarted(is_up && has_served_, now, out);
}

// Whether something has failed for good that the deployment cannot do without; then it ends here.
bool Deployment::check_failed(TimePoint now, Actions& out) {
  const auto is_failed = [](const Cohort& c) {
    return c.state() == CohortState::failed && !c.has_lost_device();
  };
  const auto failed = std::find_if(cohorts_.begin(), cohorts_.end(), is_failed);
  const bool all_failed = std::all_of(cohorts_.begin(), cohorts_.end(), is_failed);
  // While a change is watched, what was there before comes back instead.
  const bool is_final = !has_served_ || (all_failed && change_state() != ChangeState::moved);
  if (failed != cohorts_.end() && is_final) {
    const RootCause& cause = *failed->last_cause();
    fail({cause.code, fmt::format("replica {}: {}", failed->replica(), cause.message)}, now, out);
    return true;
  }
  if (router_.state() == RouterState::failed) {
    fail({router_.last_cause()->code, router_.last_cause()->message}, now, out);
    return true;
  }
  return false;
}

void Deployment::restart_due(TimePoint now, Actions& out) {
  for (Cohort& cohort : cohorts_) {
    if (cohort.state() == CohortState::waiting && now >= cohort.retry_at()) {
      start_cohort(cohort, now, out);
    }
  }
  if (router_.state() == RouterState::waiting && now >= router_.retry_at()) {
    router_.start(++incarnations_, now, out);
  }
}

// The table of replicas, whenever it or the router has changed.
void Deployment::publish(Actions& out) {
  const bool is_draining = router_.state() == RouterState::draining && !router_.peer().empty();
  if (router_.state() != RouterState::listening && !is_draining) return;
  Replicas table;
  table.deployment_state = deployment_state_name(state_);
  if (holds_clients_) {
    table.deployment_state = "held";
    table.reason = "the model is being loaded";
  } else if (failure_ && !setup_.can_go_back) {
    // Whoever waits is told at once why nothing will come.
    table.deployment_state = deployment_state_name(DeploymentState::failed);
    table.reason = failure_->message;
  } else if (stop_phase_ != StopPhase::none) {
    table.reason = "the deployment is being stopped";
  } else if (state_ != DeploymentState::serving) {
    table.reason = last_fault_ ? last_fault_->message : "the model is being loaded";
  }
  std::string content = table.deployment_state + table.reason;
  for (const Cohort& cohort : cohorts_) {
    const bool is_there =
        cohort.state() == CohortState::ready || cohort.state() == CohortState::draining;
    table.replicas.push_back({.replica = cohort.replica(),
                              .state = replica_state(cohort),
                              .endpoint = is_there ? cohort.endpoint() : "",
                              .incarnation = cohort.incarnation(),
                              .ended_incarnation = cohort.ended_incarnation(),
                              .ended_by_fault = cohort.ended_by_fault()});
    content += fmt::format(" {} {} {} {}", cohort.replica(), table.replicas.back().state,
                           cohort.incarnation(), cohort.ended_incarnation());
  }
  if (content == published_ && router_.peer() == published_to_) return;
  published_ = content;
  published_to_ = router_.peer();
  out.emplace_back(Send{router_.peer(), std::move(table)});
}

void Deployment::set_live(const OptionSet& options, Json options_json, Actions& out) {
  plans_.front().plan.options = options;
  plans_.front().plan.options_json = std::move(options_json);
  const SetLive live = live_settings(options.values);
  for (const Cohort& cohort : cohorts_) cohort.send_all(live, out);
  if (!router_.peer().empty()) out.emplace_back(Send{router_.peer(), live});
}

std::optional<TimePoint> Deployment::next_deadline() const {
  std::optional<TimePoint> first;
  const auto consider = [&first](const std::optional<TimePoint>& at) {
    if (at && (!first || *at < *first)) first = at;
  };
  for (const Cohort& cohort : cohorts_) {
    const bool is_restart = cohort.state() == CohortState::waiting;
    const bool is_wanted = stop_phase_ == StopPhase::none || stop_phase_ == StopPhase::router;
    if (!is_restart || is_wanted) consider(cohort.next_deadline());
  }
  consider(router_.next_deadline());
  if (holds_clients_ && stop_phase_ == StopPhase::none) consider(hold_until_);
  if (is_moving() && stop_phase_ == StopPhase::none) {
    if (change_->phase == MovePhase::leaving) consider(change_->leave_by);
    consider(change_->proof.deadline());
  }
  if (stop_phase_ == StopPhase::none) consider(proof_.deadline());
  if (stop_phase_ != StopPhase::none) {
    if (has_processes()) consider(stop_at_);
  } else if (is_probing_ || (probes_failed_ > 0 && !is_proved_)) {
    consider(probe_at_);
  }
  return first;
}

}  // namespace plimsoll
