#include "router/dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "shared/base/check.h"

namespace plimsoll {
namespace {

// A running request costs a row of each step; a prompt costs its tokens once.
constexpr std::int64_t kRunningCostTokens = 16;

std::int64_t load_of(const Replica& replica) {
  return replica.unstarted_tokens +
         kRunningCostTokens * static_cast<std::int64_t>(replica.requests.size());
}

Code code_from(const std::string& name) {
  for (Code code : {Code::invalid, Code::not_found, Code::does_not_fit, Code::unavailable,
                    Code::timed_out, Code::corrupt, Code::internal}) {
    if (name == code_name(code)) return code;
  }
  return Code::internal;
}

Error lost_too_often(const std::string& why, int losses) {
  return unavailable(fmt::format(
      "{}; this request has lost its replica {} times and is not tried again", why, losses));
}

}  // namespace

// Whether it is worth a wait: a replica is on its way, or the daemon is between two.
bool Dispatcher::may_come() const {
  if (deployment_state_ == "failed") return false;
  return table_.any_coming() || deployment_state_ == "loading" || deployment_state_ == "warming";
}

Error Dispatcher::nobody() const {
  return unavailable(
      fmt::format("no replica serves, and none is on its way: the deployment is {}{}{}",
                  deployment_state_, reason_.empty() ? "" : ": ", reason_));
}

std::int64_t Dispatcher::tokens_left_max() const {
  std::int64_t most = 0;
  for (const auto& [id, request] : requests_) most = std::max(most, request.resume.tokens_left());
  return most;
}

Status Dispatcher::admit(std::int64_t count) const {
  if (table_.ready_count() == 0 && !may_come()) return nobody();
  std::int64_t room = 0;
  if (queue_.empty()) {
    for (const auto& [id, replica] : table_.replicas()) {
      if (!replica.ready() || id == bench_) continue;
      room += limits_.running_max
                  ? *limits_.running_max - static_cast<std::int64_t>(replica.requests.size())
                  : limits_.unstarted_max - replica.unstarted;
    }
  }
  const std::int64_t wait = queued() + count - std::max<std::int64_t>(room, 0);
  if (wait <= limits_.queued_max) return {};
  return unavailable(fmt::format("the queue is full: {} requests wait, max-queued-requests is {}",
                                 queued(), limits_.queued_max));
}

// ---- out ----

void Dispatcher::submit(Generate generate, TimePoint now) {
  const std::uint64_t id = generate.id;
  Request request(std::move(generate));
  request.waiting_since = now;
  CHECK(requests_.emplace(id, std::move(request)).second);
  queue_.push_back(id);
  dispatch();
}

bool Dispatcher::submit_to(std::int64_t replica, Generate generate, TimePoint now) {
  const auto found = table_.replicas().find(replica);
  if (found == table_.replicas().end() || !found->second.takes_probes()) return false;
  const std::uint64_t id = generate.id;
  Request request(std::move(generate));
  request.pinned = true;
  request.waiting_since = now;
  const auto [place, added] = requests_.emplace(id, std::move(request));
  CHECK(added);
  send(id, place->second, replica);
  return true;
}

void Dispatcher::send(std::uint64_t id, Request& request, std::int64_t replica_id) {
  Replica& replica = table_.replicas().at(replica_id);
  replica.requests.insert(id);
  ++replica.unstarted;
  replica.unstarted_tokens += request.resume.prefill_tokens();
  request.replica = replica_id;
  request.started = false;
  actions_.emplace_back(SendGenerate{replica_id, request.resume.next_attempt()});
}

bool Dispatcher::has_room(std::int64_t id, const Replica& replica) const {
  if (!replica.ready() || id == bench_) return false;
  if (limits_.running_max) return std::cmp_less(replica.requests.size(), *limits_.running_max);
  return replica.unstarted < limits_.unstarted_max;
}

std::optional<std::int64_t> Dispatcher::best_replica() const {
  const Replica* best = nullptr;
  std::optional<std::int64_t> best_id;
  for (const auto& [id, replica] : table_.replicas()) {
    if (!has_room(id, replica) || (best != nullptr && load_of(replica) >= load_of(*best))) continue;
    best = &replica;
    best_id = id;
  }
  return best_id;
}

// Requests of clients there; a probe is no company.
std::int64_t Dispatcher::company(const Replica& replica) const {
  return std::ranges::count_if(replica.requests,
                               [this](std::uint64_t id) { return !requests_.at(id).pinned; });
}

std::optional<std::int64_t> Dispatcher::emptiest_replica() const {
  std::optional<std::int64_t> best;
  std::int64_t fewest = 0;
  for (const auto& [id, replica] : table_.replicas()) {
    const std::int64_t count = company(replica);
    if (!replica.ready() || (best && count >= fewest)) continue;
    best = id;
    fewest = count;
  }
  return best;
}

// Suspects run one at a time on a replica that takes nothing else meanwhile.
void Dispatcher::run_suspect() {
  if (tested_) return;
  if (suspects_.empty()) return bench_.reset();
  const auto place = table_.replicas().find(bench_.value_or(-1));
  if (place == table_.replicas().end() || !place->second.ready()) bench_ = emptiest_replica();
  if (!bench_ || company(table_.replicas().at(*bench_)) > 0) return;
  tested_ = suspects_.front();
  suspects_.pop_front();
  send(*tested_, requests_.at(*tested_), *bench_);
}

void Dispatcher::dispatch() {
  run_suspect();
  while (!queue_.empty()) {
    const std::optional<std::int64_t> best = best_replica();
    if (!best) return;
    const std::uint64_t id = queue_.front();
    queue_.pop_front();
    send(id, requests_.at(id), *best);
  }
}

// ---- books ----

void Dispatcher::mark_started(Replica& replica, Request& request) const {
  if (std::exchange(request.started, true)) return;
  --replica.unstarted;
  replica.unstarted_tokens -= request.resume.prefill_tokens();
}

void Dispatcher::take_from_replica(std::uint64_t id, Request& request) {
  if (tested_ == id) tested_.reset();
  const auto place = table_.replicas().find(request.replica.value_or(-1));
  request.replica.reset();
  if (place == table_.replicas().end() || place->second.requests.erase(id) == 0) return;
  mark_started(place->second, request);
}

void Dispatcher::take_from_queue(std::uint64_t id, const Request& request) {
  if (request.place == Place::queue) {
    std::erase(queue_, id);
  } else if (request.place == Place::suspects) {
    std::erase(suspects_, id);
  } else {
    held_.erase(id);
  }
}

void Dispatcher::put(std::uint64_t id, Request& request, Place place) {
  request.place = place;
  if (place == Place::awaits_verdict || place == Place::pauses) {
    held_.insert(id);
    return;
  }
  // Ids grow with arrival: what was sent once stands before what never was.
  std::deque<std::uint64_t>& queue = place == Place::suspects ? suspects_ : queue_;
  queue.insert(std::ranges::lower_bound(queue, id), id);
}

void Dispatcher::forget(Requests::iterator found) {
  auto& [id, request] = *found;
  if (request.replica) {
    take_from_replica(id, request);
  } else {
    take_from_queue(id, request);
  }
  requests_.erase(found);
}

void Dispatcher::fail(std::uint64_t id, Error error) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  forget(found);
  actions_.emplace_back(Fail{id, std::move(error)});
}

void Dispatcher::cancel(std::uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const Request& request = found->second;
  if (request.replica) {
    actions_.emplace_back(SendCancel{*request.replica, request.resume.wire_id()});
  }
  forget(found);
  dispatch();
}

// ---- losses ----

// What is in no book any more.
void Dispatcher::drop(std::uint64_t id, Error error) {
  requests_.erase(id);
  actions_.emplace_back(Fail{id, std::move(error)});
}

void Dispatcher::lose(const ReplicaChanges::Lost& lost, TimePoint now) {
  const std::string why = fmt::format("replica {} was lost (it is {})", lost.replica, lost.state);
  LossLedger::Loss loss{lost.replica, lost.incarnation, {}};
  std::int64_t resumed = 0;
  for (const std::uint64_t id : lost.requests) {
    Request& request = requests_.at(id);
    take_from_replica(id, request);
    request.waiting_since = now;
    if (request.pinned) {
      drop(id, unavailable(why + " before it answered this request"));
      continue;
    }
    loss.requests.push_back(id);
    const bool waits = request.resume.died(limits_.resume);
    if (!request.resume.lost(limits_.resume)) {
      drop(id, lost_too_often(why, request.resume.losses()));
      continue;
    }
    put(id, request, waits ? Place::awaits_verdict : Place::queue);
    ++resumed;
  }
  losses_.add(std::move(loss));
  if (resumed > 0) actions_.emplace_back(Resume{lost.replica, resumed, lost.state});
}

void Dispatcher::judge(const LossLedger::Verdict& verdict) {
  const bool was_alone = verdict.loss.requests.size() == 1;
  for (const std::uint64_t id : verdict.loss.requests) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const auto fate = request.resume.judged(verdict.by_fault, was_alone, limits_.resume);
    if (request.replica || request.place != Place::awaits_verdict) continue;
    if (fate == Resumable::Fate::waits) continue;
    take_from_queue(id, request);
    if (fate == Resumable::Fate::never) {
      drop(id, internal_error(fmt::format("this request ended its worker {} times, the last time "
                                          "while it ran alone; it is not tried again",
                                          request.resume.faults())));
    } else {
      put(id, request, fate == Resumable::Fate::alone ? Place::suspects : Place::queue);
    }
  }
}

// A replica that is there would not have it: not at once again.
void Dispatcher::refused(std::uint64_t id, const std::string& why, TimePoint now) {
  Request& request = requests_.at(id);
  take_from_replica(id, request);
  request.waiting_since = now;
  if (request.pinned) return drop(id, unavailable(why));
  if (!request.resume.lost(limits_.resume)) {
    return drop(id, lost_too_often(why, request.resume.losses()));
  }
  put(id, request, Place::pauses);
}

// What it had goes on at once, here or elsewhere, but for a bounded number of times: the replica
// lives, so it is no death of which a request could be the cause.
void Dispatcher::disconnected(std::int64_t replica, TimePoint now) {
  const auto found = table_.replicas().find(replica);
  if (found == table_.replicas().end() || !found->second.alive()) return;
  const std::string why = fmt::format("the connection to replica {} broke", replica);
  std::int64_t resumed = 0;
  for (const std::uint64_t id : std::set<std::uint64_t>(found->second.requests)) {
    Request& request = requests_.at(id);
    take_from_replica(id, request);
    request.waiting_since = now;
    if (request.pinned) {
      drop(id, unavailable(why));
    } else if (!request.resume.lost(limits_.resume)) {
      drop(id, lost_too_often(why, request.resume.losses()));
    } else {
      put(id, request, request.resume.is_suspect(limits_.resume) ? Place::suspects : Place::queue);
      ++resumed;
    }
  }
  actions_.emplace_back(ConnectLeader{replica, found->second.incarnation, found->second.endpoint});
  if (resumed > 0) actions_.emplace_back(Resume{replica, resumed, "disconnected"});
  dispatch();
}

void Dispatcher::end_pauses() {
  std::vector<std::uint64_t> ids;
  for (const std::uint64_t id : held_) {
    if (requests_.at(id).place == Place::pauses) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) {
    Request& request = requests_.at(id);
    held_.erase(id);
    put(id, request, request.resume.is_suspect(limits_.resume) ? Place::suspects : Place::queue);
  }
}

void Dispatcher::send_failed(std::uint64_t wire_id, const Error& error, TimePoint now) {
  const auto found = requests_.find(request_id(wire_id));
  if (found == requests_.end() || !found->second.resume.is_current(wire_id)) return;
  if (!found->second.replica) return;
  refused(found->first, "send the request to its replica: " + error.message, now);
}

// ---- in ----

void Dispatcher::event(std::int64_t replica_id, Replica& replica, TokenEvent&& event,
                       TimePoint now) {
  const std::uint64_t id = request_id(event.id);
  const auto found = requests_.find(id);
  // Cancelled ones may still have words under way; those of another replica's are not ours, nor
  // those of an earlier attempt.
  if (found == requests_.end() || found->second.replica != replica_id) return;
  Request& request = found->second;
  if (!request.resume.is_current(event.id)) return;
  event.id = id;
  if (event.finish == "error" || event.finish == "cancelled") {
    const Code code = event.finish == "cancelled" ? Code::unavailable : code_from(event.error_code);
    if (code != Code::unavailable) return fail(id, {code, std::move(event.error)});
    return refused(id, event.error.empty() ? "the replica ended it" : event.error, now);
  }
  // Before the new tokens are noted, since they add to what is to be computed first.
  if (!event.tokens.empty() || !event.prompt_logprobs.empty()) mark_started(replica, request);
  request.resume.note(event);
  const bool is_end = !event.finish.empty();
  actions_.emplace_back(Deliver{std::move(event)});
  if (is_end) {
    forget(found);
  } else if (tested_ == id && request.resume.is_clear(limits_.resume)) {
    actions_.emplace_back(SendCancel{replica_id, request.resume.wire_id()});
    take_from_replica(id, request);
    request.resume.clear(limits_.resume);
    request.waiting_since = now;
    put(id, request, Place::queue);
  }
}

void Dispatcher::tokens(std::int64_t replica_id, StepTokens&& step, TimePoint now) {
  const auto found = table_.replicas().find(replica_id);
  if (found == table_.replicas().end()) return;
  Replica& replica = found->second;
  replica.running = step.running;
  replica.waiting = step.waiting;
  replica.kv_blocks_used = step.kv_blocks_used;
  replica.kv_blocks = step.kv_blocks;
  for (TokenEvent& one : step.events) event(replica_id, replica, std::move(one), now);
  dispatch();
}

void Dispatcher::replicas(const Replicas& message, TimePoint now) {
  const bool were_ready = table_.ready_count() > 0;
  deployment_state_ = message.deployment_state;
  reason_ = message.reason;
  ReplicaChanges changes = table_.update(message.replicas);
  for (std::int64_t id : changes.disconnect) actions_.emplace_back(DropLeader{id});
  for (std::int64_t id : changes.connect) {
    const Replica& replica = table_.replicas().at(id);
    actions_.emplace_back(ConnectLeader{id, replica.incarnation, replica.endpoint});
  }
  for (const ReplicaChanges::Lost& lost : changes.lost) lose(lost, now);
  for (const auto& verdict : losses_.judge(message.replicas)) judge(verdict);
  end_pauses();
  const bool are_ready = table_.ready_count() > 0;
  if (were_ready && !are_ready) none_ready_since_ = now;
  if (deployment_state_ == "held" && !held_since_) held_since_ = now;
  if (are_ready) held_since_.reset();
  if (!are_ready && !may_come()) {
    for (const std::uint64_t id : waiting()) fail(id, nobody());
  }
  dispatch();
}

std::vector<std::uint64_t> Dispatcher::waiting() const {
  std::vector<std::uint64_t> ids(queue_.begin(), queue_.end());
  ids.insert(ids.end(), suspects_.begin(), suspects_.end());
  ids.insert(ids.end(), held_.begin(), held_.end());
  return ids;
}

void Dispatcher::tick(TimePoint now) {
  const bool none_ready = table_.ready_count() == 0;
  for (const std::uint64_t id : waiting()) {
    const Request& request = requests_.at(id);
    // Who waited in the listening socket has waited since then.
    const TimePoint since =
        held_since_.value_or(std::max(request.waiting_since, none_ready_since_));
    const bool no_replica = none_ready && now - since > limits_.hold_max;
    if (!no_replica && now - request.waiting_since <= limits_.queue_max) continue;
    fail(id, unavailable(none_ready ? "no replica became ready in time (--hold-deadline)"
                                    : "no replica had room for this request in time"));
  }
  end_pauses();
  dispatch();
}

std::vector<DispatchAction> Dispatcher::take_actions() { return std::exchange(actions_, {}); }

}  // namespace plimsoll
