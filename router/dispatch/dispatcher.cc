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

std::int64_t prompt_tokens(const Generate& generate) {
  return static_cast<std::int64_t>(generate.prompt.size());
}

Code code_from(const std::string& name) {
  for (Code code : {Code::invalid, Code::not_found, Code::does_not_fit, Code::unavailable,
                    Code::timed_out, Code::corrupt, Code::internal}) {
    if (name == code_name(code)) return code;
  }
  return Code::internal;
}

}  // namespace

Status Dispatcher::admit(std::int64_t count) const {
  if (table_.ready_count() == 0) {
    // One that served before is coming back; its requests are held. Before the first time a client
    // would wait for the weights, and after an end for nothing.
    const bool coming_back =
        ever_ready_ && (deployment_state_ == "serving" || deployment_state_ == "loading" ||
                        deployment_state_ == "warming" || deployment_state_ == "planned");
    if (!coming_back) {
      return unavailable(fmt::format("no replica is ready: the deployment is {}{}{}",
                                     deployment_state_, reason_.empty() ? "" : ": ", reason_));
    }
  }
  std::int64_t room = 0;
  if (queue_.empty()) {
    for (const auto& [id, replica] : table_.replicas()) {
      if (!replica.ready()) continue;
      room += limits_.running_max
                  ? *limits_.running_max - static_cast<std::int64_t>(replica.requests.size())
                  : limits_.unstarted_max - replica.unstarted;
    }
  }
  const std::int64_t waiting = queued() + count - std::max<std::int64_t>(room, 0);
  if (waiting <= limits_.queued_max) return {};
  return unavailable(fmt::format("the queue is full: {} requests wait, max-queued-requests is {}",
                                 queued(), limits_.queued_max));
}

void Dispatcher::submit(Generate generate, TimePoint now) {
  const std::uint64_t id = generate.id;
  Request request;
  request.generate = std::move(generate);
  request.arrived = now;
  request.waiting_since = now;
  CHECK(requests_.emplace(id, std::move(request)).second);
  queue_.push_back(id);
  dispatch_queue();
}

bool Dispatcher::submit_to(std::int64_t replica, Generate generate, TimePoint now) {
  const auto found = table_.replicas().find(replica);
  if (found == table_.replicas().end() || !found->second.ready()) return false;
  const std::uint64_t id = generate.id;
  Request request;
  request.generate = std::move(generate);
  request.pinned = true;
  request.arrived = now;
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
  replica.unstarted_tokens += prompt_tokens(request.generate);
  request.replica = replica_id;
  ++request.attempts;
  actions_.emplace_back(SendGenerate{replica_id, request.generate});
}

bool Dispatcher::has_room(const Replica& replica) const {
  if (!replica.ready()) return false;
  if (limits_.running_max) return std::cmp_less(replica.requests.size(), *limits_.running_max);
  return replica.unstarted < limits_.unstarted_max;
}

std::optional<std::int64_t> Dispatcher::best_replica() const {
  const Replica* best = nullptr;
  std::optional<std::int64_t> best_id;
  for (const auto& [id, replica] : table_.replicas()) {
    if (!has_room(replica) || (best != nullptr && load_of(replica) >= load_of(*best))) continue;
    best = &replica;
    best_id = id;
  }
  return best_id;
}

void Dispatcher::dispatch_queue() {
  while (!queue_.empty()) {
    const std::optional<std::int64_t> best = best_replica();
    if (!best) return;
    const std::uint64_t id = queue_.front();
    queue_.pop_front();
    send(id, requests_.at(id), *best);
  }
}

void Dispatcher::mark_started(Replica& replica, Request& request) const {
  if (std::exchange(request.started, true)) return;
  --replica.unstarted;
  replica.unstarted_tokens -= prompt_tokens(request.generate);
}

// Takes a request out of every book; it may be one that waits or one that runs.
void Dispatcher::forget(Requests::iterator found) {
  auto& [id, request] = *found;
  if (request.replica) {
    const auto place = table_.replicas().find(*request.replica);
    if (place != table_.replicas().end() && place->second.requests.erase(id) > 0) {
      mark_started(place->second, request);
    }
  } else {
    std::erase(queue_, id);
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
  if (found->second.replica) actions_.emplace_back(SendCancel{*found->second.replica, id});
  forget(found);
  dispatch_queue();
}

// A request that its replica will not finish: again elsewhere if nothing of it was shown.
void Dispatcher::lose(std::uint64_t id, const std::string& why, TimePoint now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.started || request.pinned || request.attempts >= limits_.attempts_max) {
    fail(id, unavailable(why + (request.started ? " while it answered this request"
                                                : " before it answered this request")));
    return;
  }
  const auto place = table_.replicas().find(request.replica.value_or(-1));
  if (place != table_.replicas().end() && place->second.requests.erase(id) > 0) {
    --place->second.unstarted;
    place->second.unstarted_tokens -= prompt_tokens(request.generate);
  }
  request.replica.reset();
  request.waiting_since = now;
  // Ids grow with arrival: what was sent once stands before what never was.
  queue_.insert(std::ranges::lower_bound(queue_, id), id);
}

void Dispatcher::event(std::int64_t replica_id, Replica& replica, TokenEvent&& event,
                       TimePoint now) {
  const auto found = requests_.find(event.id);
  // Cancelled ones may still have words under way; those of another replica's are not ours.
  if (found == requests_.end() || found->second.replica != replica_id) return;
  Request& request = found->second;
  const bool refused = event.finish == "error" || event.finish == "cancelled";
  if (refused) {
    const std::uint64_t id = event.id;
    const Code code = event.finish == "cancelled" ? Code::unavailable : code_from(event.error_code);
    if (code == Code::unavailable) {
      lose(id, event.error.empty() ? "the replica ended" : event.error, now);
    } else {
      fail(id, {code, std::move(event.error)});
    }
    return;
  }
  const bool shown = !event.tokens.empty() || !event.prompt_logprobs.empty();
  if (shown) mark_started(replica, request);
  request.emitted.insert(request.emitted.end(), event.tokens.begin(), event.tokens.end());
  if (!event.finish.empty()) forget(found);
  actions_.emplace_back(Deliver{std::move(event)});
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
  dispatch_queue();
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
  for (const ReplicaChanges::Lost& lost : changes.lost) {
    const std::string why = fmt::format("replica {} was lost (it is {})", lost.replica, lost.state);
    for (std::uint64_t id : lost.requests) lose(id, why, now);
  }
  const bool are_ready = table_.ready_count() > 0;
  ever_ready_ = ever_ready_ || are_ready;
  if (were_ready && !are_ready) none_ready_since_ = now;
  dispatch_queue();
}

void Dispatcher::send_failed(std::uint64_t id, const Error& error) {
  fail(id, unavailable("send the request to its replica: " + error.message));
}

void Dispatcher::tick(TimePoint now) {
  const bool none_ready = table_.ready_count() == 0;
  std::vector<std::uint64_t> late;
  for (std::uint64_t id : queue_) {
    const Request& request = requests_.at(id);
    const bool no_replica = none_ready && now - std::max(request.waiting_since, none_ready_since_) >
                                              limits_.no_replica_max;
    if (no_replica || now - request.arrived > limits_.queue_max) late.push_back(id);
  }
  for (std::uint64_t id : late) {
    fail(id, unavailable(none_ready ? "no replica became ready in time"
                                    : "no replica had room for this request in time"));
  }
}

std::vector<DispatchAction> Dispatcher::take_actions() { return std::exchange(actions_, {}); }

}  // namespace plimsoll
