// The part of the cohort that looks at the time: ranks that hang, pings, deadlines.

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "daemon/cohort.h"

namespace plimsoll {

// Whether the others wait for it; itself it may wait for as long as they take.
bool Cohort::is_awaited(const Worker& worker) const {
  if (state_ != CohortState::loading) return worker.state != WorkerState::ready;
  const bool is_held = holds_ && worker.state == WorkerState::hello && !worker.peer.empty();
  const bool waits_for_others =
      is_held || worker.waits_for_peers || (holds_opened_ && worker.opened);
  return !worker.is_loaded && !waits_for_others;
}

void Cohort::check_loading(TimePoint now, Actions& out) {
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker = workers_[rank];
    if (!is_awaited(worker) || now - worker.last_sign < options().load_timeout) continue;
    const char* where = worker.peer.empty()              ? "has not said hello"
                        : state_ == CohortState::warming ? "has not finished its first step"
                                                         : "made no progress with loading";
    return condemn(static_cast<std::int64_t>(rank),
                   timed_out(fmt::format("{} for {:.0f} s (--load-timeout)", where,
                                         to_seconds(now - worker.last_sign))),
                   now, out);
  }
}

// Who holds up the others: of the ranks without a sign since then the one that is furthest behind
// in the collectives, where its peers wait for it; the suspect when none is behind it.
std::int64_t Cohort::last_to_join(std::int64_t suspect, TimePoint silent_since) const {
  if (marks_.size() != workers_.size()) return suspect;
  auto last = static_cast<std::size_t>(suspect);
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    const bool is_behind = static_cast<std::int32_t>(marks_[rank].round - marks_[last].round) < 0;
    if (is_behind && workers_[rank].last_sign <= silent_since) last = rank;
  }
  return static_cast<std::int64_t>(last);
}

// Both numbers say where a collective stands: its own is in its mark.
std::string Cohort::who_waits_for(std::int64_t rank) const {
  if (marks_.size() != workers_.size()) return "";
  const std::uint32_t own = marks_[static_cast<std::size_t>(rank)].round;
  const auto ahead = [own](const RankMark& mark) {
    return static_cast<std::int32_t>(mark.round - own);
  };
  const auto first = std::ranges::max_element(marks_, {}, ahead);
  if (ahead(*first) <= 0) return "";
  return fmt::format(" while rank {} waits for it in collective {}", first - marks_.begin(),
                     first->round);
}

// Whether pings of it are to be answered. One that drains leaves once its leader has.
bool Cohort::is_answering(const Worker& worker) const {
  if (state_ == CohortState::draining && (was_killed_ || !workers_[0].is_alive)) return false;
  return worker.is_alive;
}

void Cohort::check_ready(TimePoint now, Actions& out) {
  const Duration stall = options().stall_timeout;
  if (!is_answering(workers_[0])) return;
  // After a pause of the daemon itself nobody else is to blame for silence.
  if (now - ping_at_ > 2 * ping_interval()) {
    for (Worker& worker : workers_) worker.last_sign = now;
    figures_.step_at = now;
  }
  // Of several silent ranks the one that was silent first holds up the others.
  const auto silent =
      std::min_element(workers_.begin(), workers_.end(), [&](const Worker& a, const Worker& b) {
        const bool a_counts = is_answering(a);
        return a_counts != is_answering(b) ? a_counts : a.last_sign < b.last_sign;
      });
  if (now - silent->last_sign >= stall) {
    const std::int64_t rank = last_to_join(silent - workers_.begin(), now - stall / 2);
    const Worker& culprit = workers_[static_cast<std::size_t>(rank)];
    return condemn(rank,
                   timed_out(fmt::format("hangs: it has not answered for {:.1f} s "
                                         "(--stall-timeout){}",
                                         to_seconds(now - culprit.last_sign), who_waits_for(rank))),
                   now, out);
  }
  if (now - figures_.step_at >= stall) {
    const std::int64_t rank = last_to_join(0, now);
    return condemn(rank,
                   timed_out(fmt::format("hangs: {} requests wait and no step has finished for "
                                         "{:.1f} s (--stall-timeout){}",
                                         figures_.last.running + figures_.last.waiting,
                                         to_seconds(now - figures_.step_at), who_waits_for(rank))),
                   now, out);
  }
  if (now < ping_at_) return;
  send_all(Ping{++ping_sequence_}, out);
  ping_at_ = now + ping_interval();
}

void Cohort::tick(TimePoint now, Actions& out) {
  switch (state_) {
    case CohortState::loading:
    case CohortState::warming:
      return check_loading(now, out);
    case CohortState::ready:
    case CohortState::draining:
      return check_ready(now, out);
    case CohortState::dying:
      if (has_processes() && now >= kill_at_) {
        kill_all(SIGKILL, out);
        kill_at_ = now + kLeaveTime;
        look_at_stuck(now, out);
      }
      return settle(now, out);
    case CohortState::idle:
    case CohortState::waiting:  // the deployment starts it, with the next incarnation
    case CohortState::failed:
      return;
  }
}

std::optional<TimePoint> Cohort::next_deadline() const {
  switch (state_) {
    case CohortState::loading:
    case CohortState::warming: {
      std::optional<TimePoint> first;
      for (const Worker& worker : workers_) {
        if (is_awaited(worker))
          first = std::min(first.value_or(worker.last_sign), worker.last_sign);
      }
      if (!first) return std::nullopt;  // the other replicas are not there yet
      return *first + options().load_timeout;
    }
    case CohortState::ready:
    case CohortState::draining: {
      if (!is_answering(workers_[0])) return std::nullopt;
      TimePoint first = figures_.step_at;
      for (const Worker& worker : workers_) {
        if (is_answering(worker)) first = std::min(first, worker.last_sign);
      }
      return std::min(ping_at_, first + options().stall_timeout);
    }
    case CohortState::dying:
      return has_processes() ? kill_at_ : bury_at_;
    case CohortState::waiting:
      return retry_at_;
    case CohortState::idle:
    case CohortState::failed:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace plimsoll
