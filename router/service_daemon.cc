// The part of the service that does what the daemon says: replicas, probes, limits, and its end.

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "router/service.h"
#include "shared/base/log.h"
#include "shared/options/option_set.h"

namespace plimsoll {
namespace {

// What of an answer that is cut off is said, where there is still somebody to say it.
ApiError cut_off_error(const std::string& why) {
  ApiError error = draining_error();
  error.message = why + " before this answer was complete";
  return error;
}

}  // namespace

void Service::daemon_message(const Message& message, TimePoint now) {
  if (const auto* replicas = std::get_if<Replicas>(&message)) {
    dispatcher_.replicas(*replicas, now);
  } else if (const auto* probe_message = std::get_if<Probe>(&message)) {
    probe(*probe_message, now);
  } else if (const auto* live = std::get_if<SetLive>(&message)) {
    if (live->max_queued_requests >= 0) dispatcher_.set_queued_max(live->max_queued_requests);
    if (live->hold_deadline_ms >= 0) {
      dispatcher_.set_hold_max(milliseconds(live->hold_deadline_ms));
    }
    if (!live->log_level.empty()) actions_.emplace_back(SetLogLevel{live->log_level});
  } else if (const auto* drain_message = std::get_if<Drain>(&message)) {
    drain(*drain_message, now);
  } else if (const auto* setup = std::get_if<RouterSetup>(&message)) {
    change_limits(*setup);
  }
  settle(now);
}

void Service::probe(const Probe& message, TimePoint now) {
  for (const auto& [id, replica] : probe_.pending()) dispatcher_.cancel(id);
  probe_.clear();
  const std::vector<TokenId> ids = model_.tokenizer.encode("Hello", false, true);
  std::map<std::uint64_t, std::int64_t> requests;
  for (const auto& [replica, state] : dispatcher_.table().replicas()) {
    // At first none is ready: each proves itself.
    const bool is_ready = state.ready() || dispatcher_.table().ready_count() == 0;
    const bool is_meant = message.replica < 0 ? is_ready : replica == message.replica;
    if (is_meant && state.takes_probes()) requests.emplace(next_request_++, replica);
  }
  if (requests.empty()) {
    const std::string why = message.replica < 0
                                ? "no replica is ready"
                                : fmt::format("replica {} is not ready", message.replica);
    actions_.emplace_back(ToDaemon{ProbeResult{message.sequence, false, why}});
    return;
  }
  for (const auto& [id, replica] : requests) {
    Generate generate;
    generate.id = id;
    generate.prompt.assign(ids.begin(), ids.end());
    generate.sampling.max_tokens = 1;
    generate.sampling.temperature = 0;
    generate.sampling.ignore_eos = true;
    dispatcher_.submit_to(replica, std::move(generate), now);
  }
  probe_.start(message.sequence, std::move(requests), now);
}

void Service::probe_done(const std::optional<ProbeResult>& result) {
  if (!result) return;
  for (const auto& [id, replica] : probe_.pending()) dispatcher_.cancel(id);
  probe_.clear();
  actions_.emplace_back(ToDaemon{*result});
}

void Service::drain(const Drain& message, TimePoint now) {
  const TimePoint deadline = now + milliseconds(std::max<std::int64_t>(message.deadline_ms, 0));
  if (!drain_deadline_) LOG_INFO("draining: {} requests are open", jobs_.size());
  drain_deadline_ = drain_deadline_ ? std::min(*drain_deadline_, deadline) : deadline;
  is_followed_ = message.is_followed;
  actions_.emplace_back(EndConnections{});
  if (is_followed_) actions_.emplace_back(StopAccepting{});
}

void Service::all_answered(TimePoint now) {
  is_all_answered_ = true;
  settle(now);
}

void Service::terminated(TimePoint now) {
  // In a drain that is under way it is the daemon, whose time is up.
  drain({.deadline_ms = 0, .is_followed = !drain_deadline_ || is_followed_}, now);
  settle(now);
}

void Service::disconnected(std::int64_t replica, TimePoint now) {
  dispatcher_.disconnected(replica, now);
  settle(now);
}

void Service::change_limits(const RouterSetup& setup) {
  const Result<OptionSet> options = option_set_from_json(setup.options);
  if (!options || setup.context_length < 1) {
    LOG_WARNING("limits that the daemon sent are not taken over: {}",
                options ? "the context length is none" : options.error().message);
    return;
  }
  dispatcher_.set_running_max(options->values.max_running_requests);
  dispatcher_.set_queued_max(options->values.max_queued_requests);
  dispatcher_.set_hold_max(options->values.hold_deadline);
  model_.limits = prompt_limits(model_.tokenizer, setup.context_length);
}

void Service::check_drained(TimePoint now) {
  if (!drain_deadline_ || exiting_) return;
  // Who waits in the listening socket is served by the next router. Who has been let in can only be
  // served here, also where the request itself is still on its way.
  const bool is_done = jobs_.empty() && (is_all_answered_ || !is_followed_);
  if (!is_done && now < *drain_deadline_) return;
  exiting_ = true;
  const ApiError error =
      cut_off_error(is_followed_ ? "the router is started again" : "the server stopped");
  while (!jobs_.empty()) fail_job(jobs_.begin()->first, error, now);
  for (auto batch = dispatcher_.take_actions(); !batch.empty();
       batch = dispatcher_.take_actions()) {
    for (DispatchAction& action : batch) apply(std::move(action), now);
  }
  log_failures();
  send_stats();
  actions_.emplace_back(Exit{});
}

}  // namespace plimsoll
