#include "router/service.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "router/api/detokenize.h"
#include "router/api/models.h"
#include "router/api/route_table.h"
#include "router/api/tokenize.h"
#include "shared/base/log.h"

namespace plimsoll {
namespace {

// A stream without a token for this long gets its head, so that proxies see an answer.
constexpr Duration kHeadAfter = seconds(10);
constexpr Duration kKeepAliveEvery = seconds(15);
constexpr Duration kStatsEvery = seconds(1);
constexpr std::size_t kUnknownLoggedMax = 256;

HttpResponse text_response(std::string body, const char* content_type) {
  HttpResponse response;
  response.content_type = content_type;
  response.body = std::move(body);
  return response;
}

}  // namespace

ApiError draining_error() {
  ApiError error;
  error.status = 503;
  error.message = "the server is stopping; it takes no new requests";
  error.code = "draining";
  error.retry_after_s = 2;
  return error;
}

Service::Service(ModelContext model, const ServiceSetup& setup)
    : model_(std::move(model)), dispatcher_(setup.limits), random_(setup.random_seed) {
  // A leader may outlive a router: ids of this one must not meet those of the last.
  constexpr unsigned kRandomBits = kAttemptShift - 32;
  next_request_ = ((random_() >> (64U - kRandomBits)) << 32U) + 1;
}

std::string Service::random_id(const char* prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_(), random_() >> 32U);
}

// ---- HTTP ----

void Service::http_request(ExchangeId exchange, const HttpRequest& request, TimePoint now) {
  auto route = match_route(request.method, request.path);
  if (const auto* error = std::get_if<ApiError>(&route)) {
    respond(exchange, request.request_id, error_response(*error));
    return;
  }
  const RouteMatch& match = std::get<RouteMatch>(route);
  if (match.endpoint == Endpoint::completions || match.endpoint == Endpoint::chat_completions) {
    start_job(exchange, request, match.endpoint == Endpoint::chat_completions, now);
  } else {
    respond(exchange, request.request_id, answer(match, request));
  }
  settle(now);
}

HttpResponse Service::answer(const RouteMatch& route, const HttpRequest& request) {
  switch (route.endpoint) {
    case Endpoint::models:
      return list_models(model_);
    case Endpoint::model:
      return show_model(model_, route.rest);
    case Endpoint::health:
      return health_response();
    case Endpoint::live:
      return json_response(Json::object({{"status", "ok"}}));
    case Endpoint::metrics:
      return metrics_response();
    case Endpoint::tokenize:
      return tokenize(model_, request);
    case Endpoint::detokenize:
      return detokenize(model_, request);
    case Endpoint::version:
      return json_response(Json::object({{"version", PLIMSOLL_VERSION}}));
    case Endpoint::options: {
      HttpResponse response;
      response.status = 204;
      response.headers.emplace_back("Allow", route.allow);
      return response;
    }
    case Endpoint::completions:
    case Endpoint::chat_completions:
      break;
  }
  return error_response(api_error(internal_error("this route has no answer")));
}

HttpResponse Service::health_response() const {
  const Readiness state = readiness(dispatcher_, drain_deadline_.has_value());
  HttpResponse response = json_response(state.body);
  if (!state.ready) {
    response.status = 503;
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

HttpResponse Service::metrics_response() const {
  Gauges gauges;
  gauges.waiting = dispatcher_.queued();
  gauges.replicas_ready = dispatcher_.table().ready_count();
  std::int64_t used = 0;
  std::int64_t blocks = 0;
  for (const auto& [id, replica] : dispatcher_.table().replicas()) {
    ++gauges.replicas;
    gauges.running += static_cast<std::int64_t>(replica.requests.size()) - replica.waiting;
    gauges.waiting += replica.waiting;
    used += replica.kv_blocks_used;
    blocks += replica.kv_blocks;
  }
  gauges.running = std::max<std::int64_t>(gauges.running, 0);
  if (blocks > 0) gauges.kv_usage = static_cast<double>(used) / static_cast<double>(blocks);
  return text_response(metrics_text(metrics_, gauges, model_.name),
                       "text/plain; version=0.0.4; charset=utf-8");
}

void Service::respond(ExchangeId exchange, const std::string& request_id, HttpResponse response) {
  response.headers.emplace_back("X-Request-Id", request_id);
  ++metrics_.responses[response.status];
  actions_.emplace_back(Respond{exchange, std::move(response)});
}

void Service::log_unknown(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (unknown_logged_.size() >= kUnknownLoggedMax || !unknown_logged_.insert(name).second) {
      continue;
    }
    LOG_WARNING("a client sends the field {}, which has no effect here (said once)",
                dump_json(Json(name)));
  }
}

void Service::start_job(ExchangeId exchange, const HttpRequest& request, bool chat, TimePoint now) {
  CompletionPlan plan;
  Refusal refusal;
  if (drain_deadline_ && (!is_followed_ || exiting_)) refusal = draining_error();
  if (!refusal) {
    const CompletionInputs inputs{
        .request = &request,
        .chat = chat,
        .id = random_id(chat ? "chatcmpl-" : "cmpl-"),
        .created = request.received,
        .random_seed = random_(),
        .admit = [this](std::int64_t choices) { return dispatcher_.admit(choices); }};
    refusal = plan_completion(model_, inputs, plan);
  }
  log_unknown(plan.unknown_fields);
  if (refusal) {
    HttpResponse response = error_response(*refusal);
    name_unknown_fields(response, plan.unknown_fields);
    respond(exchange, request.request_id, std::move(response));
    return;
  }
  plan.job.exchange = exchange;
  plan.job.arrived = now;
  OpenJob open{.job = Job(std::move(plan.job), model_.tokenizer),
               .ids = {},
               .request_id = request.request_id,
               .unknown_fields = std::move(plan.unknown_fields),
               .last_data = now};
  for (std::size_t choice = 0; choice < plan.generates.size(); ++choice) {
    plan.generates[choice].id = next_request_++;
    open.ids.push_back(plan.generates[choice].id);
    places_.emplace(plan.generates[choice].id, Place{exchange, choice});
  }
  ++requests_total_;
  metrics_.prompt_tokens += open.job.usage().prompt_tokens;
  jobs_.emplace(exchange, std::move(open));
  for (Generate& generate : plan.generates) dispatcher_.submit(std::move(generate), now);
}

void Service::hung_up(ExchangeId exchange, TimePoint now) {
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return;
  ++metrics_.abandoned;
  cancel_choices(found->second);
  end_job(exchange, now);
  settle(now);
}

// ---- tokens ----

void Service::leader_tokens(std::int64_t replica, StepTokens&& step, TimePoint now) {
  dispatcher_.tokens(replica, std::move(step), now);
  settle(now);
}

void Service::send_failed(std::uint64_t id, const Error& error, TimePoint now) {
  dispatcher_.send_failed(id, error, now);
  settle(now);
}

// Turns what the dispatcher decided into actions until nothing is left, then sends what each
// touched job has to say in one piece.
void Service::settle(TimePoint now) {
  for (auto batch = dispatcher_.take_actions(); !batch.empty();
       batch = dispatcher_.take_actions()) {
    for (DispatchAction& action : batch) apply(std::move(action), now);
  }
  for (ExchangeId exchange : std::exchange(touched_, {})) flush_job(exchange, now);
  // Ending a job may have cancelled choices.
  for (auto batch = dispatcher_.take_actions(); !batch.empty();
       batch = dispatcher_.take_actions()) {
    for (DispatchAction& action : batch) apply(std::move(action), now);
  }
  log_failures();
  check_drained(now);
}

// One cause may fail many requests: it is said once.
void Service::log_failures() {
  constexpr std::size_t kNamedMax = 3;
  for (const auto& [why, ids] : std::exchange(failures_, {})) {
    std::string named;
    for (std::size_t i = 0; i < std::min(ids.size(), kNamedMax); ++i) {
      named += (i == 0 ? "" : ", ") + ids[i];
    }
    if (ids.size() > kNamedMax) named += fmt::format(" and {} more", ids.size() - kNamedMax);
    LOG_WARNING("request {} failed: {}", named, why);
  }
}

void Service::apply(DispatchAction&& action, TimePoint now) {
  if (auto* generate = std::get_if<SendGenerate>(&action)) {
    actions_.emplace_back(ToLeader{generate->replica, std::move(generate->generate)});
  } else if (auto* cancel = std::get_if<SendCancel>(&action)) {
    actions_.emplace_back(ToLeader{cancel->replica, Cancel{cancel->id}});
  } else if (auto* delivery = std::get_if<Deliver>(&action)) {
    deliver(std::move(delivery->event), now);
  } else if (auto* failure = std::get_if<Fail>(&action)) {
    fail(failure->id, failure->error, now);
  } else if (auto* connect = std::get_if<ConnectLeader>(&action)) {
    actions_.emplace_back(std::move(*connect));
  } else if (auto* drop = std::get_if<DropLeader>(&action)) {
    actions_.emplace_back(*drop);
  } else if (const auto* resume = std::get_if<Resume>(&action)) {
    metrics_.resumed += resume->requests;
    LOG_INFO("replica {} is {}: {} of its requests go on {}", resume->replica, resume->state,
             resume->requests,
             dispatcher_.table().ready_count() > 0 ? "elsewhere" : "when a replica is ready");
  }
}

void Service::deliver(TokenEvent&& event, TimePoint now) {
  if (probe_.owns(event.id)) {
    if (event.finish.empty()) return;
    const bool real = !event.tokens.empty() && event.tokens.front() >= 0 &&
                      event.tokens.front() < model_.tokenizer.vocab_size();
    probe_done(real ? probe_.finished(event.id)
                    : probe_.failed(event.id, internal_error("it finished without a valid token")));
    return;
  }
  const auto place = places_.find(event.id);
  if (place == places_.end()) return;
  const auto [exchange, choice] = place->second;
  OpenJob& open = jobs_.at(exchange);
  if (!event.tokens.empty() && !std::exchange(open.first_token, true)) {
    metrics_.first_token_s.observe(to_seconds(now - open.job.arrived()));
  }
  const std::int64_t before = open.job.stream_of(choice).completion_tokens();
  const std::int64_t cached_before = open.job.cached_tokens();
  open.job.push(choice, event);
  metrics_.cached_tokens += open.job.cached_tokens() - cached_before;
  const ChoiceStream& stream = open.job.stream_of(choice);
  metrics_.generation_tokens += stream.completion_tokens() - before;
  touched_.insert(exchange);
  if (stream.finish().empty()) return;
  ++metrics_.finished[stream.finish()];
  if (stream.stopped_early()) dispatcher_.cancel(event.id);
  places_.erase(place);
  open.ids[choice] = 0;
}

void Service::fail(std::uint64_t id, const Error& error, TimePoint now) {
  if (probe_.owns(id)) {
    probe_done(probe_.failed(id, error));
    return;
  }
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  const ExchangeId exchange = place->second.exchange;
  flush_job(exchange, now);  // what was said before the error comes before it
  fail_job(exchange, api_error(error), now);
}

void Service::fail_job(ExchangeId exchange, const ApiError& error, TimePoint now) {
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return;
  OpenJob& open = found->second;
  ++metrics_.failed;
  failures_[error.message].push_back(open.request_id);
  cancel_choices(open);
  ApiError answer = error;
  constexpr int kOurFault = 500;  // whoever reports it needs the id
  if (answer.status == kOurFault) answer.message += fmt::format(" (request {})", open.request_id);
  if (open.begun) {
    actions_.emplace_back(StreamData{exchange, error_event(answer)});
    actions_.emplace_back(EndStream{exchange, false});
  } else {
    HttpResponse response = error_response(answer);
    name_unknown_fields(response, open.unknown_fields);
    respond(exchange, open.request_id, std::move(response));
  }
  end_job(exchange, now);
}

void Service::cancel_choices(OpenJob& open) {
  for (std::uint64_t& id : open.ids) {
    if (id == 0) continue;
    dispatcher_.cancel(id);
    places_.erase(id);
    id = 0;
  }
}

void Service::begin(OpenJob& open, TimePoint now) {
  if (std::exchange(open.begun, true)) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"},
                  {"X-Accel-Buffering", "no"},
                  {"X-Request-Id", open.request_id}};
  name_unknown_fields(head, open.unknown_fields);
  ++metrics_.responses[head.status];
  open.last_data = now;
  actions_.emplace_back(BeginStream{open.job.exchange(), std::move(head)});
}

void Service::flush_job(ExchangeId exchange, TimePoint now) {
  const auto found = jobs_.find(exchange);
  if (found == jobs_.end()) return;
  OpenJob& open = found->second;
  if (open.job.streams()) {
    std::string events = open.job.take_events();
    if (!events.empty()) {
      begin(open, now);
      open.last_data = now;
      actions_.emplace_back(StreamData{exchange, std::move(events)});
    }
    if (!open.job.done()) return;
    actions_.emplace_back(EndStream{exchange, true});
  } else {
    if (!open.job.done()) return;
    HttpResponse response;
    response.body = open.job.body();
    name_unknown_fields(response, open.unknown_fields);
    respond(exchange, open.request_id, std::move(response));
  }
  end_job(exchange, now);
}

void Service::end_job(ExchangeId exchange, TimePoint now) {
  const auto found = jobs_.find(exchange);
  metrics_.request_s.observe(to_seconds(now - found->second.job.arrived()));
  touched_.erase(exchange);
  jobs_.erase(found);
}

// ---- time ----

void Service::tick(TimePoint now) {
  dispatcher_.tick(now);
  probe_done(probe_.tick(now));
  keep_streams_alive(now);
  settle(now);
  if (now - last_stats_at_ >= kStatsEvery) {
    last_stats_at_ = now;
    send_stats();
  }
}

void Service::keep_streams_alive(TimePoint now) {
  for (auto& [exchange, open] : jobs_) {
    if (!open.job.streams()) continue;
    if (!open.begun && now - open.job.arrived() > kHeadAfter) {
      begin(open, now);
      open.job.open_early();
      std::string events = open.job.take_events();
      if (!events.empty()) actions_.emplace_back(StreamData{exchange, std::move(events)});
    } else if (open.begun && now - open.last_data > kKeepAliveEvery) {
      open.last_data = now;
      actions_.emplace_back(StreamData{exchange, ": still working\n\n"});
    }
  }
}

// Also where nothing changed: the daemon takes a router that is silent for one that hangs.
void Service::send_stats() {
  actions_.emplace_back(
      ToDaemon{RouterStats{.open_requests = static_cast<std::int64_t>(jobs_.size()),
                           .queued_requests = dispatcher_.queued(),
                           .tokens_left_max = dispatcher_.tokens_left_max(),
                           .requests_total = requests_total_,
                           .failed_total = metrics_.failed}});
}

std::vector<RouterAction> Service::take_actions() { return std::exchange(actions_, {}); }

}  // namespace plimsoll
