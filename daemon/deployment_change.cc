// The part of the deployment that puts replicas of one plan in the place of another's.

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "daemon/deployment.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

// One that starts for the first time has something to go back to, so it gets no second try.
constexpr int kStartsMaxForward = 1;
// Without anything to finish a replica only has to take the message.
constexpr Duration kLeaveTime = seconds(2);

}  // namespace

bool Deployment::is_moving() const {
  const ChangeState state = change_state();
  return state == ChangeState::moving || state == ChangeState::reverting;
}

std::int64_t Deployment::free_replica() const {
  std::set<std::int64_t> taken;
  for (const Cohort& cohort : cohorts_) taken.insert(cohort.replica());
  for (const Move& move : change_->moves) {
    for (const Seat& seat : move.arrive) taken.insert(seat.replica);
  }
  std::int64_t replica = 0;
  while (taken.contains(replica)) ++replica;
  return replica;
}

// ---- in order ----

void Deployment::change(LaunchPlan next, ChangePath path, TimePoint now, Actions& out) {
  CHECK(has_served_ && !change_ && plans_.size() == 1);
  // What was to be found out is of what leaves; where it comes back it is asked for anew.
  awaits_devices_ = false;
  awaits_replicas_ = false;
  plans_.push_back({std::move(next)});
  drifts_said_.clear();
  change_.emplace();
  change_->from = &plans_.front();
  change_->to = &plans_.back();
  // Whom the router lets in has to fit both.
  const bool is_shorter = plans_.back().plan.context_length < plan().context_length;
  if (is_shorter) use_router_plan(plans_.back(), out);

  std::vector<Seat> present;
  for (const Cohort& cohort : cohorts_) present.push_back({cohort.replica(), cohort.index()});
  const auto wanted = static_cast<std::size_t>(plans_.back().plan.dp);
  const std::size_t count = std::max(present.size(), wanted);
  Move all;
  for (std::size_t i = 0; i < count; ++i) {
    Move move;
    move.starts_first = path == ChangePath::beside;
    if (i < present.size()) move.leave.push_back(present[i]);
    if (i < wanted) {
      const bool takes_place = path != ChangePath::beside && i < present.size();
      const std::int64_t replica = takes_place ? present[i].replica : free_replica();
      move.arrive.push_back({replica, static_cast<std::int64_t>(i)});
    }
    if (path != ChangePath::hold) {
      change_->moves.push_back(std::move(move));
      continue;
    }
    all.leave.insert(all.leave.end(), move.leave.begin(), move.leave.end());
    all.arrive.insert(all.arrive.end(), move.arrive.begin(), move.arrive.end());
    change_->moves = {all};  // so that the next free number is another one
  }
  settle(now, out);
}

void Deployment::revert(Error why, TimePoint now, Actions& out) {
  CHECK(change_state() == ChangeState::moved);
  begin_revert(std::move(why));
  settle(now, out);
}

void Deployment::end_change(Actions& out) {
  CHECK(change_ && !is_moving());
  const bool has_moved = change_->state == ChangeState::moved;
  if (has_moved) {
    use_router_plan(plans_.back(), out);
    plans_.pop_front();
  } else {
    use_router_plan(plans_.front(), out);
    plans_.pop_back();
  }
  change_.reset();
}

void Deployment::use_router_plan(const PlanInUse& plan, Actions& out) {
  router_.use_plan(plan.plan, out);
}

Duration Deployment::hold_estimate() const {
  Duration start{0};
  double steps_per_second = 0;
  for (const Cohort& cohort : cohorts_) {
    start = std::max(start, cohort.started_in());
    steps_per_second = std::max(steps_per_second, cohort.figures().steps_per_second);
  }
  Duration drain{0};
  if (router_.stats().open_requests > 0 && steps_per_second > 0) {
    const double left = static_cast<double>(router_.stats().tokens_left_max) / steps_per_second;
    drain = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(left));
  }
  return start + std::min<Duration>(drain, plan().options.values.shutdown_timeout);
}

// ---- one move after the other ----

void Deployment::step_change(TimePoint now, Actions& out) {
  if (!is_moving()) return;
  if (change_->state == ChangeState::moving) {
    if (std::optional<Error> why = arrival_failure()) begin_revert(std::move(*why));
  }
  while (step_move(now, out)) {
    // One whose device is in quarantine is refused at once.
    if (change_->state != ChangeState::moving) continue;
    if (std::optional<Error> why = arrival_failure()) begin_revert(std::move(*why));
  }
}

// Whether there is more to do at once.
bool Deployment::step_move(TimePoint now, Actions& out) {
  Change& change = *change_;
  if (change.at == change.moves.size()) {
    change.state = change.state == ChangeState::moving ? ChangeState::moved : ChangeState::reverted;
    is_proved_ = true;  // each has answered a probe
    return false;
  }
  const Move& move = change.moves[change.at];
  const auto next = [&change] {
    ++change.at;
    change.phase = MovePhase::begin;
  };
  switch (change.phase) {
    case MovePhase::begin:
      if (move.starts_first) {
        begin_arriving(move, now, out);
      } else {
        begin_leaving(move, now, out);
      }
      return true;
    case MovePhase::leaving:
      if (!have_left(move, now, out)) return false;
      if (move.starts_first) {
        next();
      } else {
        begin_arriving(move, now, out);
      }
      return true;
    case MovePhase::arriving:
      if (!have_arrived(move, now, out)) return false;
      if (move.starts_first) {
        begin_leaving(move, now, out);
      } else {
        next();
      }
      return true;
  }
  return false;
}

// What runs there is finished first; what is not ready has nothing to finish.
void Deployment::begin_leaving(const Move& move, TimePoint now, Actions& out) {
  Change& change = *change_;
  const milliseconds timeout = plan().options.values.shutdown_timeout;
  change.phase = MovePhase::leaving;
  change.leave_by = now;
  for (const Seat& seat : move.leave) {
    Cohort* cohort = find_cohort(seat.replica);
    if (cohort == nullptr) continue;
    const bool is_working = is_ready(*cohort);
    if (is_working) {
      cohort->drain(timeout, now, out);
      change.leave_by = std::max<TimePoint>(change.leave_by, now + timeout + kLeaveTime);
    } else if (cohort->state() != CohortState::draining) {
      cohort->end(SIGTERM, now, out);
      change.leave_by = std::max<TimePoint>(change.leave_by, now + kLeaveTime);
    } else {
      change.leave_by = std::max<TimePoint>(change.leave_by, now + timeout + kLeaveTime);
    }
  }
}

bool Deployment::have_left(const Move& move, TimePoint now, Actions& out) {
  bool are_gone = true;
  for (const Seat& seat : move.leave) {
    Cohort* cohort = find_cohort(seat.replica);
    if (cohort == nullptr) continue;
    const bool is_late = now >= change_->leave_by;
    if (is_late) cohort->end(SIGKILL, now, out);  // and, again, looks at what does not end
    if (cohort->state() == CohortState::idle && !cohort->has_processes()) {
      std::erase_if(cohorts_, [&](const Cohort& c) { return c.replica() == seat.replica; });
    } else {
      are_gone = false;
    }
  }
  if (now >= change_->leave_by) change_->leave_by = now + kLeaveTime;
  return are_gone;
}

void Deployment::begin_arriving(const Move& move, TimePoint now, Actions& out) {
  change_->phase = MovePhase::arriving;
  change_->proof = {};
  const bool is_forward = change_->state == ChangeState::moving;
  for (const Seat& seat : move.arrive) {
    add_cohort(seat, *change_->to, is_forward ? kStartsMaxForward : setup_.starts_max);
    start_cohort(cohorts_.back(), now, out);
  }
}

// Ready, and each proved with a real token, one after the other. On the way back what fails for
// good is left behind: the others serve.
bool Deployment::have_arrived(const Move& move, TimePoint now, Actions& out) {
  bool is_waiting = false;
  for (const Seat& seat : move.arrive) {
    const Cohort* cohort = find_cohort(seat.replica);
    if (cohort == nullptr || cohort->state() == CohortState::failed) continue;
    if (cohort->state() != CohortState::ready) is_waiting = true;
  }
  if (is_waiting) {
    change_->proof.is_blocked = true;
    return false;
  }
  for (const Seat& seat : move.arrive) {
    const Cohort* cohort = find_cohort(seat.replica);
    const bool is_there = cohort != nullptr && cohort->state() == CohortState::ready;
    if (!is_there || cohort->is_proved()) continue;
    prove(change_->proof, seat.replica, now, out);
    return false;
  }
  return true;
}

// ---- back ----

// Why what has come so far is not what was wanted.
std::optional<Error> Deployment::arrival_failure() const {
  for (const Cohort& cohort : cohorts_) {
    if (&cohort.plan() != &change_->to->plan) continue;
    const bool has_died =
        cohort.state() == CohortState::failed || cohort.state() == CohortState::waiting;
    if (!has_died || !cohort.last_cause()) continue;
    const RootCause& cause = *cohort.last_cause();
    return Error{cause.code, fmt::format("replica {}: {}", cohort.replica(), cause.message)};
  }
  return std::nullopt;
}

// The moves so far, backwards: whoever has come leaves, and whoever has left comes again.
void Deployment::begin_revert(Error why) {
  Change& change = *change_;
  std::vector<Move> back;
  const std::size_t begun = std::min(change.at + 1, change.moves.size());
  for (std::size_t i = begun; i-- > 0;) {
    const Move& move = change.moves[i];
    const bool is_done = i < change.at;
    Move undo;
    undo.starts_first = move.starts_first && is_done;
    for (const Seat& seat : move.leave) {
      const Cohort* cohort = find_cohort(seat.replica);
      const bool is_untouched = cohort != nullptr && &cohort->plan() == &change.from->plan &&
                                cohort->state() != CohortState::draining &&
                                (move.starts_first ? change.phase != MovePhase::leaving
                                                   : change.phase == MovePhase::begin);
      if (!is_done && is_untouched) continue;
      undo.arrive.push_back(seat);
      if (cohort != nullptr) undo.leave.push_back(seat);
    }
    for (const Seat& seat : move.arrive) {
      const Cohort* cohort = find_cohort(seat.replica);
      if (cohort == nullptr || &cohort->plan() != &change.to->plan) continue;
      const bool is_listed = std::ranges::any_of(
          undo.leave, [&](const Seat& other) { return other.replica == seat.replica; });
      if (!is_listed) undo.leave.push_back(seat);
    }
    if (!undo.leave.empty() || !undo.arrive.empty()) back.push_back(std::move(undo));
  }
  change.failure = std::move(why);
  change.state = ChangeState::reverting;
  change.moves = std::move(back);
  change.at = 0;
  change.phase = MovePhase::begin;
  change.proof = {};
  std::swap(change.from, change.to);
}

}  // namespace plimsoll
