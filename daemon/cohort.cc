#include "daemon/cohort.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/control/endpoints.h"

namespace plimsoll {
namespace {

constexpr Duration kPingInterval = seconds(1);
// A rate over less would jump with every step.
constexpr Duration kRateWindow = milliseconds(900);

// What it can't say of its memory is not compared.
void take_measured(Worker& worker, const Json& json) {
  Result<Measured> measured = measured_from_json(json);
  if (measured) worker.measured = std::move(*measured);
}

}  // namespace

const char* cohort_state_name(CohortState state) {
  switch (state) {
    case CohortState::idle:
      return "stopped";
    case CohortState::waiting:
    case CohortState::dying:
      return "restarting";
    case CohortState::loading:
      return "loading";
    case CohortState::warming:
      return "warming";
    case CohortState::ready:
      return "ready";
    case CohortState::draining:
      return "draining";
    case CohortState::failed:
      return "failed";
  }
  return "";
}

const char* worker_state_name(WorkerState state) {
  static constexpr const char* kNames[] = {"gone",    "hello", "planned",
                                           "loading", "ready", "draining"};
  return kNames[static_cast<std::size_t>(state)];
}

Cohort::Cohort(const Setup& setup)
    : setup_(setup),
      policy_(setup.seed, setup.starts_max),
      workers_(static_cast<std::size_t>(setup.plan->tp)) {}

bool Cohort::has_processes() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.is_alive; });
}

ChildId Cohort::child(std::int64_t rank) const {
  return {.kind = ChildId::Kind::worker,
          .replica = setup_.replica,
          .rank = rank,
          .incarnation = incarnation_};
}

Duration Cohort::ping_interval() const {
  return std::min<Duration>(kPingInterval, options().stall_timeout / 4);
}

// ---- start ----

void Cohort::start(std::int64_t incarnation, TimePoint now, Actions& out) {
  CHECK(!has_processes() && !is_ended_);
  incarnation_ = incarnation;
  ++starts_;
  started_at_ = now;
  state_ = CohortState::loading;
  is_proved_ = false;
  was_killed_ = false;
  killed_at_ = TimePoint();
  looked_at_ = TimePoint();
  is_stuck_said_ = false;
  kv_blocks_ = 0;
  figures_ = {};
  marks_.clear();
  endpoint_ = plimsoll::request_endpoint(setup_.runtime, setup_.replica, incarnation_);
  out.emplace_back(CreateSegment{.replica = setup_.replica,
                                 .incarnation = incarnation_,
                                 .ranks = setup_.plan->tp,
                                 .connects_ranks = has_cuda_kernels()});
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    workers_[rank] = Worker{};
    workers_[rank].words.rank = static_cast<std::int64_t>(rank);
    workers_[rank].last_sign = now;
    // Alive from here on: the answer is ChildStarted or SpawnFailed.
    workers_[rank].is_alive = true;
    out.emplace_back(Spawn{child(static_cast<std::int64_t>(rank))});
  }
}

void Cohort::child_started(std::int64_t rank, std::int64_t pid, TimePoint now) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.state = WorkerState::hello;
  worker.pid = pid;
  worker.words.pid = pid;
  worker.last_sign = now;
}

void Cohort::spawn_failed(std::int64_t rank, const Error& error, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.is_alive = false;
  worker.words.verdict = "could not be started: " + error;
  if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  begin_dying(rank, "could not be started", now, out);
  settle(now, out);
}

void Cohort::hello(const std::string& peer, const Hello& hello, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(hello.rank)];
  worker.peer = peer;
  worker.device = hello.device;
  worker.last_sign = now;
  // One that was heard before has lost its connection, and maybe what was on its way to it. What it
  // has had it ignores.
  const bool is_ready = worker.state == WorkerState::ready;
  if (state_ == CohortState::warming && !is_ready) {
    out.emplace_back(Send{peer, Commit{kv_blocks_, context_length_}});
  }
  if (state_ == CohortState::draining && !was_killed_) {  // whoever drains it has the deadline
    out.emplace_back(Send{peer, Drain{options().shutdown_timeout.count()}});
  }
  const bool may_lack_load =
      worker.state == WorkerState::hello || worker.state == WorkerState::planned;
  if (state_ != CohortState::loading || !may_lack_load) return;
  if (!holds_) send_load(hello.rank, out);
}

void Cohort::send_load(std::int64_t rank, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.state = WorkerState::planned;
  Load load;
  load.options = setup_.plan->options_json;
  load.plan = setup_.plan->plan_json;
  load.replica = setup_.index;
  load.rank = rank;
  if (rank == 0) load.request_endpoint = endpoint_;
  load.collectives = collectives_.is_null() ? setup_.plan->collectives : collectives_;
  load.is_tentative = holds_opened_;
  const auto place = static_cast<std::size_t>(setup_.index * setup_.plan->tp + rank);
  if (place < setup_.plan->simulated_memory.size()) {
    load.simulated_memory = setup_.plan->simulated_memory[place];
  }
  out.emplace_back(Send{worker.peer, std::move(load)});
}

bool Cohort::all_opened() const {
  return state_ == CohortState::loading &&
         std::ranges::all_of(workers_, [](const Worker& w) { return w.opened.has_value(); });
}

void Cohort::release(TimePoint now, Actions& out) {
  holds_ = false;
  holds_opened_ = false;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    const bool lacks_load = worker.state == WorkerState::hello || worker.opened;
    const bool waits =
        state_ == CohortState::loading && worker.is_alive && lacks_load && !worker.peer.empty();
    if (!waits) continue;
    worker.last_sign = now;
    send_load(static_cast<std::int64_t>(rank), out);
  }
}

void Cohort::loaded(Worker& worker, const Loaded& loaded) {
  worker.is_loaded = true;
  take_measured(worker, loaded.measured);
  if (worker.bytes_total > 0) worker.bytes_done = worker.bytes_total;
}

// For the peers to have loaded too. From when the last has, all go on.
void Cohort::waits(Worker& worker, TimePoint now) {
  worker.last_sign = now;
  worker.waits_for_peers = true;
  const bool all_wait = std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.waits_for_peers || w.is_loaded;
  });
  if (!all_wait) return;
  for (Worker& one : workers_) {
    one.waits_for_peers = false;
    one.last_sign = now;
  }
}

bool Cohort::awaits_commit() const {
  return state_ == CohortState::loading &&
         std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.is_loaded; });
}

void Cohort::commit(Blocks kv_blocks, Tokens context_length, TimePoint now, Actions& out) {
  CHECK(awaits_commit());
  state_ = CohortState::warming;
  kv_blocks_ = kv_blocks;
  context_length_ = context_length;
  for (Worker& worker : workers_) worker.last_sign = now;
  send_all(Commit{kv_blocks, context_length}, out);
}

void Cohort::refuse(const Error& error, TimePoint now, Actions& out) {
  condemn(0, error, now, out);
}

void Cohort::said(std::int64_t rank, const Message& message, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (const auto* fault_message = std::get_if<Fault>(&message)) {
    return fault(worker, rank, *fault_message, now, out);
  }
  if (state_ != CohortState::loading && state_ != CohortState::warming &&
      state_ != CohortState::ready && state_ != CohortState::draining) {
    return;
  }
  if (const auto* progress = std::get_if<Progress>(&message)) {
    if (worker.state == WorkerState::planned) worker.state = WorkerState::loading;
    if (progress->phase == "warming") {  // its bytes are no longer those of weights
      worker.last_sign = now;
      return;
    }
    if (progress->phase == "waiting") return waits(worker, now);
    // Only what moves counts: a worker that repeats itself is stuck.
    if (progress->done != worker.bytes_done || worker.bytes_total == 0) worker.last_sign = now;
    worker.bytes_done = progress->done;
    worker.bytes_total = progress->total;
  } else if (const auto* opened = std::get_if<Opened>(&message)) {
    worker.last_sign = now;
    worker.opened = *opened;
    if (!holds_opened_ && state_ == CohortState::loading) send_load(rank, out);
  } else if (const auto* loaded_message = std::get_if<Loaded>(&message)) {
    worker.last_sign = now;
    worker.state = WorkerState::loading;
    loaded(worker, *loaded_message);
  } else if (const auto* ready = std::get_if<Ready>(&message)) {
    if (state_ != CohortState::warming) return;
    worker.last_sign = now;
    worker.state = WorkerState::ready;
    if (!ready->device.empty()) worker.device = ready->device;
    if (!ready->measured.is_null()) take_measured(worker, ready->measured);
    worker.collectives = ready->collectives;
    settle(now, out);
  } else if (const auto* pong_message = std::get_if<Pong>(&message)) {
    worker.last_sign = now;
    worker.kv_blocks_touched = pong_message->kv_blocks_touched;
    if (rank == 0) pong(*pong_message, now);
  }
}

void Cohort::pong(const Pong& pong, TimePoint now) {
  const Duration passed = now - figures_.window_at;
  if (passed >= kRateWindow) {
    const std::int64_t tokens = pong.generated_tokens - figures_.window_tokens;
    figures_.tokens_per_second =
        static_cast<double>(std::max<std::int64_t>(tokens, 0)) / to_seconds(passed);
    figures_.steps_per_second =
        static_cast<double>(std::max<std::int64_t>(pong.steps - figures_.window_steps, 0)) /
        to_seconds(passed);
    figures_.window_at = now;
    figures_.window_tokens = pong.generated_tokens;
    figures_.window_steps = pong.steps;
  }
  const bool is_idle = pong.running + pong.waiting == 0;
  if (is_idle || pong.steps != figures_.last.steps) figures_.step_at = now;
  figures_.last = pong;
}

std::int64_t Cohort::odd_table() const {
  const Json* first = workers_.front().collectives.find("hash");
  for (std::size_t rank = 1; rank < workers_.size(); ++rank) {
    const Json* own = workers_[rank].collectives.find("hash");
    const bool is_same = own == nullptr || first == nullptr ? own == first : *own == *first;
    if (!is_same) return static_cast<std::int64_t>(rank);
  }
  return -1;
}

void Cohort::settle(TimePoint now, Actions& out) {
  if (state_ == CohortState::warming &&
      std::all_of(workers_.begin(), workers_.end(),
                  [](const Worker& w) { return w.state == WorkerState::ready; })) {
    if (const std::int64_t rank = odd_table(); rank >= 0) {
      return condemn(rank,
                     internal_error("goes by another table of collectives than rank 0: sums of "
                                    "such ranks would never meet"),
                     now, out);
    }
    state_ = CohortState::ready;
    collectives_ = workers_.front().collectives;
    started_in_ = now - started_at_;
    policy_.became_ready(now);
    if (starts_ > 1) {
      out.emplace_back(Log{LogLevel::info, fmt::format("replica {}: ready again", setup_.replica)});
    }
    figures_.window_at = now;
    figures_.step_at = now;
    for (Worker& worker : workers_) worker.last_sign = now;
    ping_at_ = now + ping_interval();
  }
  if (state_ != CohortState::dying && state_ != CohortState::draining) return;
  if (!has_processes() && (is_ended_ || is_mute() || now >= bury_at_)) buried(now, out);
}

// ---- end ----

// Whether no last words of a rank can be on their way any more.
bool Cohort::is_mute() const {
  return std::none_of(workers_.begin(), workers_.end(),
                      [](const Worker& w) { return may_still_speak(w.words) && !w.peer.empty(); });
}

void Cohort::fault(Worker& worker, std::int64_t rank, const Fault& fault, TimePoint now,
                   Actions& out) {
  if (!worker.words.fault) worker.words.fault = Error{code_from_name(fault.code), fault.message};
  if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  if (state_ == CohortState::draining && was_killed_) return;
  begin_dying(rank, fault.message, now, out);
  settle(now, out);
}

void Cohort::child_dying(std::int64_t rank, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  // One that leaves in order lets go of its life too: its exit tells which it was.
  const bool is_expected = state_ == CohortState::draining || state_ == CohortState::dying;
  if (!worker.is_alive || is_expected) return;
  worker.is_dying = true;
  worker.words.was_first = true;
  if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  begin_dying(rank, "has died", now, out);
}

void Cohort::child_exited(std::int64_t rank, const Ending& ending, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  if (!worker.is_alive) return;  // it was abandoned, and has ended after all
  worker.is_alive = false;
  worker.state = WorkerState::gone;
  worker.words.ending = ending;
  worker.words.was_killed = was_killed_ && !worker.is_dying;
  worker.words.was_first = worker.words.was_first || state_ != CohortState::dying;
  bury_at_ = now + kLastWordsTime;
  if (worker.words.first_sign == TimePoint()) worker.words.first_sign = now;
  if (state_ != CohortState::draining) {
    begin_dying(rank, describe_ending(ending), now, out);
  } else if (!was_killed_ && (ending.by_signal || ending.code != 0)) {
    out.emplace_back(Log{LogLevel::warning,
                         fmt::format("replica {}: rank {} (pid {}) {} while it was draining",
                                     setup_.replica, rank, worker.pid, describe_ending(ending))});
    begin_dying(rank, describe_ending(ending), now, out);  // its peers wait for it
  }
  settle(now, out);
}

void Cohort::begin_dying(std::int64_t rank, const std::string& what, TimePoint now, Actions& out) {
  if (state_ == CohortState::dying) return;
  state_ = CohortState::dying;
  kill_at_ = now + kLeaveTime;
  out.emplace_back(AbortSegment{
      setup_.replica, fmt::format("rank {} of replica {} {}", rank, setup_.replica, what)});
}

// The supervisor's own finding about a rank that does not move; the kernel will not make it leave.
void Cohort::condemn(std::int64_t rank, Error verdict, TimePoint now, Actions& out) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const std::string what = verdict.message;
  worker.words.verdict = std::move(verdict);
  worker.words.first_sign = now;
  if (is_ended_) {
    out.emplace_back(
        Log{LogLevel::warning, fmt::format("replica {}: rank {} (pid {}) {}, while it was draining",
                                           setup_.replica, rank, worker.pid, what)});
  }
  begin_dying(rank, what, now, out);
  kill_all(SIGKILL, out);
}

void Cohort::kill_all(int signal, Actions& out) {
  was_killed_ = true;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].is_alive) continue;
    out.emplace_back(Kill{child(static_cast<std::int64_t>(rank)), signal});
  }
}

// Requests that wait for this replica have to see it ready again before their time is up.
Duration Cohort::longest_delay() const {
  constexpr Duration kMargin = seconds(2);
  const Duration hold = options().hold_deadline;
  const Duration left = hold - started_in_ - started_in_ / 2 - kMargin;
  // Where none of them can wait so long, haste saves nobody.
  return left < seconds(1) ? RestartPolicy::kDelayMax : std::min(left, hold / 2);
}

// The last process is gone.
void Cohort::buried(TimePoint now, Actions& out) {
  out.emplace_back(DropSegment{setup_.replica, incarnation_});
  figures_ = {};  // nothing runs there any more
  ended_incarnation_ = incarnation_;
  ended_by_fault_ = false;
  if (is_ended_) {
    state_ = CohortState::idle;
    return;
  }
  std::vector<LastWords> words;
  for (const Worker& worker : workers_) words.push_back(worker.words);
  last_cause_ = find_root_cause(words);
  has_new_cause_ = true;
  ended_by_fault_ = last_cause_->is_own_fault;
  std::optional<Duration> delay;
  if (fault_class(last_cause_->code, last_cause_->is_device) != FaultClass::device) {
    delay = policy_.next_delay(last_cause_->code, now, longest_delay());
  }
  std::string next = "it is not started again";
  if (delay) {
    state_ = CohortState::waiting;
    retry_at_ = now + *delay;
    next = fmt::format("starting again in {:.1f} s", to_seconds(*delay));
  } else {
    state_ = CohortState::failed;
  }
  out.emplace_back(Log{LogLevel::error, fmt::format("replica {}: {}; {}", setup_.replica,
                                                    last_cause_->message, next)});
}

std::optional<RootCause> Cohort::take_cause() {
  if (!std::exchange(has_new_cause_, false)) return std::nullopt;
  return last_cause_;
}

// Ended for good while no process was left.
void Cohort::rest(TimePoint now, Actions& out) {
  if (state_ == CohortState::dying) buried(now, out);  // it waited for last words
  state_ = CohortState::idle;
}

void Cohort::drain(milliseconds deadline, TimePoint now, Actions& out) {
  is_ended_ = true;
  if (!has_processes()) return rest(now, out);
  if (state_ == CohortState::dying) return;
  state_ = CohortState::draining;
  for (Worker& worker : workers_) {
    if (worker.is_alive) worker.state = WorkerState::draining;
    worker.last_sign = now;
  }
  figures_.step_at = now;
  ping_at_ = now + ping_interval();
  send_all(Drain{deadline.count()}, out);
}

void Cohort::end(int signal, TimePoint now, Actions& out) {
  is_ended_ = true;
  if (!has_processes()) return rest(now, out);
  if (state_ != CohortState::dying && state_ != CohortState::draining) {
    state_ = CohortState::draining;
    out.emplace_back(AbortSegment{setup_.replica, "the deployment is being stopped"});
  }
  if (state_ == CohortState::dying) kill_at_ = std::min(kill_at_, now);
  kill_all(signal, out);
  if (signal == SIGKILL) look_at_stuck(now, out);
}

void Cohort::send_all(const Message& message, Actions& out) const {
  for (const Worker& worker : workers_) {
    if (worker.is_alive && !worker.peer.empty()) out.emplace_back(Send{worker.peer, message});
  }
}

}  // namespace plimsoll
