#include "daemon/supervisor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/control/codec.h"
#include "shared/options/option_set.h"

namespace plimsoll {
namespace {

constexpr Duration kExtendAtLatest = seconds(20);
// What ends processes that ignore the deadline of a stop takes less than that.
constexpr Duration kStopMargin = seconds(10);
// A terminal's Ctrl-C and the SIGTERM of whoever started plimsolld are one wish.
constexpr Duration kSameWish = seconds(1);
// A reconfiguration has something to go back to, so its new generation gets no second try.
constexpr int kStartsMax = 5;
constexpr int kStartsMaxWithPrevious = 1;

std::string listener_name(const Options& options) {
  return fmt::format("{}:{}", options.host, options.port);
}

}  // namespace

SetLive live_settings(const Options& options) {
  return {.log_level = options.log_level,
          .max_queued_requests = options.max_queued_requests,
          .step_time_max_ms = options.step_time_max.count(),
          .hold_deadline_ms = options.hold_deadline.count()};
}

std::string child_name(const ChildId& child) {
  if (child.kind == ChildId::Kind::router) return "router";
  return fmt::format("worker {}.{}", child.replica, child.rank);
}

Supervisor::Supervisor(Setup setup)
    : setup_(std::move(setup)),
      given_(setup_.options),
      options_(setup_.options),
      generations_(setup_.last_generation),
      committed_(setup_.committed) {}

Actions Supervisor::handle(const Event& event, TimePoint now) {
  out_.clear();
  std::visit([&](const auto& alternative) { on(alternative, now); }, event);
  settle(now);
  begin_what_waits(now);
  return std::move(out_);
}

DeploymentState Supervisor::state() const {
  if (deployment_) return deployment_->state();
  if (is_planning()) return DeploymentState::planned;
  return failure_ ? DeploymentState::failed : DeploymentState::stopped;
}

std::string Supervisor::reason() const {
  if (deployment_ && deployment_->failure()) return deployment_->failure()->message;
  if (!deployment_ && failure_ && !is_planning()) return failure_->message;
  if (state() == DeploymentState::serving) return "";
  return last_fault() ? last_fault()->message : "";
}

const std::optional<LastFault>& Supervisor::last_fault() const {
  return deployment_ && deployment_->last_fault() ? deployment_->last_fault() : last_fault_;
}

const char* Supervisor::operation_name() const {
  static constexpr const char* kNames[] = {"", "start", "stop", "restart", "reconfigure"};
  return kNames[static_cast<std::size_t>(operation_.kind)];
}

std::optional<TimePoint> Supervisor::next_deadline() const {
  std::optional<TimePoint> next = deployment_ ? deployment_->next_deadline() : std::nullopt;
  std::optional<TimePoint> watch;
  if (operation_.watch) watch = operation_.watch->next_look();
  std::optional<TimePoint> extend;
  if (is_bringing_up()) extend = extended_at_ + kExtendAtLatest;
  for (const std::optional<TimePoint>& own : {watch, operation_.plan_again_at, extend}) {
    if (own) next = std::min(next.value_or(*own), *own);
  }
  return next;
}

// ---- events ----

void Supervisor::on(const Begin&, TimePoint now) {
  begin_operation(OperationKind::start, now);
  options_ = first_options();
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
  if (options_.values.model.empty()) {
    operation_ = {};
    log(LogLevel::info, "idle: waiting for `plimsoll start --model FILE`");
    was_notified_ready_ = true;
    out_.emplace_back(Notify{.is_ready = true, .status = "idle: waiting for `plimsoll start`"});
    out_.emplace_back(SaveState{});
    return;
  }
  operation_.target = options_;
  // Nobody waits for a reply; a daemon that was started to serve ends when it cannot.
  operation_.ends_daemon = true;
  make_plan(options_);
}

void Supervisor::on(const Planned& event, TimePoint now) {
  if (deployment_ && deployment_->awaits_plan(event.question)) {
    if (event.plan && !event.plan->refusal) {
      if (operation_.is_launched && operation_.plan) operation_.plan = *event.plan;
      const LaunchPlan& before = deployment_->plan();
      if (event.plan->tp != before.tp || event.plan->dp != before.dp) {
        record_.tokens_per_second = 0;  // that was the speed of another layout
        record_.speed_requests = 0;
      }
      record_.plan = event.plan->plan_json;
      write_record();
    }
    return deployment_->replanned(event.plan, now, out_);
  }
  if (event.question != operation_.question || is_exiting_) return;  // it is of what is over
  operation_.question = 0;
  // A device that has failed meanwhile.
  if (event.plan && is_planned_on_lost(*event.plan)) return make_plan(event.options);
  const bool is_refused = event.plan && event.plan->refusal;
  if (!event.plan || is_refused) {
    if (waits_for_memory(event, now)) return;
    const Error error = is_refused ? *event.plan->refusal : event.plan.error();
    if (!operation_.is_dry_run) record_refusal(error, is_refused ? &*event.plan : nullptr, now);
    // What runs keeps running.
    if (is_running() || operation_.is_dry_run) return finish(exit_code(error.code), error.message);
    return target_failed(error, now);
  }
  operation_.plan = *event.plan;
  operation_.plan_again_at.reset();
  if (!is_running()) {
    if (operation_.is_dry_run) return finish_dry_run();
    release_quarantine();
    return launch(now);
  }
  const Result<ChangePath> path = path_of_change();
  if (!path) return finish(exit_code(path.error().code), path.error().message);
  operation_.path = *path;
  if (operation_.is_dry_run) return finish_dry_run();
  release_quarantine();
  if (operation_.path != ChangePath::restart) return begin_change(now);
  // A port that is taken is known before anything is touched; of one port, hosts follow each other.
  const Options& next = operation_.plan->options.values;
  const bool is_other_host = next.port != 0 && url_.ends_with(fmt::format(":{}", next.port));
  if (bound_ == listener_name(next) || is_other_host) return begin_replacement(now);
  out_.emplace_back(BindListener{next.host, next.port});
}

void Supervisor::begin_replacement(TimePoint now) {
  remember_previous();
  log(LogLevel::info, fmt::format("{}: the running requests are finished first", operation_name()));
  begin_stop({.is_followed = true}, now);
}

// Memory that is being given back is worth waiting for; who holds it is said at once.
bool Supervisor::waits_for_memory(const Planned& event, TimePoint now) {
  if (!event.held || operation_.is_dry_run) return false;
  const bool is_first = !operation_.memory_wait.has_begun();
  operation_.plan_again_at = operation_.memory_wait.next_look(event.held->available, now);
  if (!operation_.plan_again_at) return false;
  operation_.planned_options = event.options;
  if (!is_first) return true;
  log(LogLevel::warning, fmt::format("the plan does not fit in the {} that are available; waiting "
                                     "for other processes to give memory back",
                                     format_bytes(event.held->available)));
  for (const std::string& holder : event.held->holders) log(LogLevel::warning, holder);
  return true;
}

Supervisor::Operation& Supervisor::begin_operation(OperationKind kind, TimePoint now) {
  operation_ = {};
  operation_.kind = kind;
  operation_.cause = operation_name();
  operation_.based_on = generation_;
  operation_.since = now;
  return operation_;
}

void Supervisor::launch(TimePoint now) {
  if (is_planned_on_lost(*operation_.plan)) {  // as it may have been for long
    const OptionSet options = operation_.plan->options;
    operation_.plan.reset();
    return make_plan(options);
  }
  const LaunchPlan& plan = *operation_.plan;
  options_ = plan.options;
  if (operation_.previous && operation_.failure) {
    generation_ = operation_.previous->generation;
    resume_record(operation_.previous->record);
  } else {
    generation_ = ++generations_;
    begin_record(now);
  }
  launched_at_ = now;
  operation_.is_launched = true;
  failure_.reset();
  for (const std::string& note : plan.notes) log(LogLevel::info, "plan: " + note);
  // A listener that stays open lets clients wait in its queue while processes change.
  if (bound_ == listener_name(options_.values)) return create_deployment(now);
  out_.emplace_back(BindListener{options_.values.host, options_.values.port});
}

void Supervisor::on(const ListenerBound& event, TimePoint now) {
  if (!operation_.plan) return;
  if (!event.url && is_running()) {
    const Error& error = event.url.error();
    record_refusal(error, &*operation_.plan, now);
    return finish(exit_code(error.code), error.message);
  }
  if (!event.url) {
    bound_.clear();  // of one port, the other host's had to go first
    return target_failed(event.url.error(), now);
  }
  url_ = *event.url;
  bound_ = listener_name(operation_.plan->options.values);
  if (is_running()) return begin_replacement(now);
  create_deployment(now);
}

void Supervisor::create_deployment(TimePoint now) {
  const bool can_go_back = operation_.previous && !operation_.failure;
  const Deployment::Setup setup{
      .instance = setup_.instance,
      .runtime = setup_.runtime,
      .seed = setup_.seed + static_cast<std::uint64_t>(generation_) * 1000,
      .starts_max = can_go_back ? kStartsMaxWithPrevious : kStartsMax,
      .can_go_back = can_go_back};
  deployment_ = std::make_unique<Deployment>(
      *operation_.plan, setup,
      Deployment::Shared{incarnations_, questions_, strangers_, quarantine_});
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
  reported_percent_ = -1;
  extended_at_ = now;
  deployment_->start(now, out_);
}

void Supervisor::on(const ChildStarted& event, TimePoint now) {
  if (deployment_) deployment_->child_started(event.child, event.pid, now, out_);
}

void Supervisor::on(const SpawnFailed& event, TimePoint now) {
  if (deployment_) deployment_->spawn_failed(event.child, event.error, now, out_);
}

void Supervisor::on(const ChildExited& event, TimePoint now) {
  if (deployment_) deployment_->child_exited(event.child, event.ending, now, out_);
}

void Supervisor::on(const Received& event, TimePoint now) {
  if (const auto* words = std::get_if<Command>(&event.message)) {
    command(event.peer, *words, now);
  } else if (deployment_) {
    deployment_->said(event.peer, event.message, now, out_);
  } else if (strangers_.is_news(event.peer)) {
    log(LogLevel::warning, fmt::format("control: dropped a '{}' of an unknown process, and will "
                                       "drop what else it says",
                                       message_type(event.message)));
  }
}

void Supervisor::on(const StopSignal&, TimePoint now) {
  if (operation_.kind == OperationKind::stop && operation_.ends_daemon) {
    if (!deployment_) return;
    if (!operation_.signalled_at) {
      operation_.signalled_at = now;
      log(LogLevel::info, "the stop is under way; another signal ends all processes at once");
      return;
    }
    if (now - *operation_.signalled_at < kSameWish) return;
    log(LogLevel::warning, "asked to stop again: ending all processes at once");
    return deployment_->kill(now, out_);
  }
  if (operation_.kind != OperationKind::none && operation_.kind != OperationKind::stop) {
    give_up("plimsolld was asked to stop");
  }
  if (operation_.kind == OperationKind::none) begin_operation(OperationKind::stop, now);
  operation_.ends_daemon = true;
  operation_.signalled_at = now;
  out_.emplace_back(Notify{.is_stopping = true,
                           .status = "stopping",
                           .extend = options_.values.shutdown_timeout + kStopMargin});
  begin_stop({}, now);
}

void Supervisor::on(const ChildDying& event, TimePoint now) {
  if (deployment_) deployment_->child_dying(event.child, now, out_);
}

void Supervisor::on(const Tick& event, TimePoint now) {
  if (operation_.plan_again_at && now >= *operation_.plan_again_at) {
    operation_.plan_again_at.reset();
    make_plan(operation_.planned_options);
  }
  if (!deployment_) return;
  deployment_->note_marks(event.replicas);
  deployment_->tick(now, out_);
  if (deployment_->state() == DeploymentState::serving) note_speed(now);
}

// ---- what follows from the deployment's state ----

void Supervisor::begin_stop(Deployment::StopHow how, TimePoint now) {
  if (deployment_) deployment_->stop(how, now, out_);
}

void Supervisor::settle(TimePoint now) {
  if (is_exiting_) return;
  report(now);
  extend_deadline(now);
  if (deployment_) {
    const DeploymentState state = deployment_->state();
    note_pause(now);
    if (operation_.is_in_place) {
      watch_change(now);
    } else {
      const bool is_up = state == DeploymentState::serving || operation_.watch;
      if (is_up && operation_.is_launched) watch_target(now);
    }
    if (state == DeploymentState::stopped || state == DeploymentState::failed) {
      deployment_gone(now);
    }
  } else if (operation_.kind == OperationKind::stop) {
    deployment_gone(now);
  }
}

// No process of the deployment is left.
void Supervisor::deployment_gone(TimePoint now) {
  if (deployment_) {
    failure_ = deployment_->failure();
    last_fault_ = last_fault();
    deployment_.reset();
    report(now);
  }
  // What would be planned changes nothing of what was there.
  switch (operation_.is_dry_run ? OperationKind::none : operation_.kind) {
    case OperationKind::stop: {
      const bool ends_daemon = operation_.ends_daemon;
      const int code = operation_.exit_code;
      if (!bound_.empty()) out_.emplace_back(CloseListener{ends_daemon});
      bound_.clear();
      url_.clear();
      failure_.reset();
      end_record(Outcome::stopped, "", now);
      finish(0, "stopped");
      if (ends_daemon) return exit(code);
      report(now);
      return;
    }
    case OperationKind::restart:
    case OperationKind::reconfigure:
    case OperationKind::start:
      if (!operation_.plan) {
        // What ran has failed while its successor waits for memory, which has nothing to go back
        // to any more.
        log(LogLevel::error, "failed: " + failure_->message);
        end_record(Outcome::failed, failure_->message, now);
        operation_.previous.reset();
        return;
      }
      if (operation_.verdict) return target_failed(*std::exchange(operation_.verdict, {}), now);
      if (failure_ && operation_.is_launched) return target_failed(*failure_, now);
      return launch(now);
    case OperationKind::none:
      // It had served, and nothing of it can be started again.
      log(LogLevel::error, "failed: " + failure_->message);
      end_record(Outcome::failed, failure_->message, now);
      if (!bound_.empty()) out_.emplace_back(CloseListener{});
      bound_.clear();
      url_.clear();
      return;
  }
}

// The operation's new generation could not be brought up; nothing of it is left.
void Supervisor::target_failed(const Error& error, TimePoint now) {
  if (operation_.is_launched) end_record(Outcome::failed, error.message, now);
  if (operation_.previous && !operation_.failure) {
    log(LogLevel::error, fmt::format("generation {} failed: {}; going back to generation {}",
                                     generation_, error.message, operation_.previous->generation));
    operation_.failure = error;
    operation_.plan = operation_.previous->plan;
    restore_quarantine();
    operation_.watch.reset();
    operation_.given.reset();
    operation_.is_in_place = false;
    return launch(now);
  }
  failure_ = error;
  const bool ends_daemon = operation_.ends_daemon;
  if (!bound_.empty()) out_.emplace_back(CloseListener{ends_daemon});
  bound_.clear();
  url_.clear();
  std::string message = error.message;
  if (operation_.failure) {
    message = fmt::format("{}; and the previous options failed too: {}",
                          operation_.failure->message, message);
  }
  for (const std::string_view line : split(message, '\n')) log(LogLevel::error, std::string(line));
  if (operation_.kind == OperationKind::start && operation_.based_on != 0 && ends_daemon) {
    log(LogLevel::error,
        fmt::format("these are the options of generation {}, which was in operation when the last "
                    "plimsolld ended; another configuration takes their place, and so does one "
                    "without {}/committed.json",
                    operation_.based_on, setup_.state));
  }
  finish(exit_code(error.code), message);
  if (ends_daemon) return exit(exit_code(error.code));
  report(now);
}

void Supervisor::target_serves(TimePoint now) {
  if (!operation_.watch && !operation_.is_in_place) serving_since_ = now;
  deployment_->cut_way_back();
  out_.emplace_back(KeepListener{});
  out_.emplace_back(
      Notify{.status = fmt::format("{} (generation {})", serving_line(), generation_)});
  record_serving(serving_since_);
  commit();
  Json result = operation_.result.is_null() ? Json::object() : operation_.result;
  result.set("url", url_).set("generation", generation_);
  if (operation_.kind != OperationKind::start) {
    result.set("pause_s", to_seconds(operation_.pause.value_or(Duration(0))));
    result.set("path", change_path_name(operation_.path));
  }
  if (operation_.failure) {
    const Error& failure = *operation_.failure;
    const bool is_restart = operation_.kind == OperationKind::restart;
    return finish(exit_code(failure.code),
                  fmt::format("{} failed: {}; generation {} serves {}",
                              is_restart ? "the restart" : "the new options", failure.message,
                              generation_, operation_.is_in_place ? "on" : "again"),
                  result);
  }
  if (operation_.kind != OperationKind::start) {
    log(LogLevel::info,
        fmt::format("{}: generation {} is committed: a next start of plimsolld runs "
                    "it",
                    operation_name(), generation_));
  }
  finish(0, "serving at " + url_, result);
}

// How long nothing served, from the first such moment to the last.
void Supervisor::note_pause(TimePoint now) {
  const bool is_change =
      operation_.kind == OperationKind::reconfigure || operation_.kind == OperationKind::restart;
  if (!is_change || !operation_.plan) return;
  const bool is_serving = deployment_->state() == DeploymentState::serving;
  if (!is_serving && !operation_.paused_at) operation_.paused_at = now;
  if (!is_serving) operation_.pause.reset();
  if (is_serving && operation_.paused_at && !operation_.pause) {
    operation_.pause = now - *operation_.paused_at;
  }
}

// The operation is not carried on. What has not been committed is not what the next start is to
// run.
void Supervisor::give_up(const std::string& why) {
  if (operation_.previous) {
    options_ = operation_.previous->options;
    generation_ = operation_.previous->generation;
  }
  finish(exit_code(Code::unavailable), why);
}

// Ends the operation with a Reply to all who wait for it.
void Supervisor::finish(std::int64_t code, const std::string& message, const Json& result) {
  if (code != 0) restore_quarantine();
  for (const std::string& peer : operation_.waiting) reply(peer, code, message, result);
  operation_ = {};
}

void Supervisor::exit(int code) {
  is_exiting_ = true;
  out_.emplace_back(Notify{.is_stopping = true, .status = "stopped"});
  out_.emplace_back(SaveState{});
  out_.emplace_back(Exit{code});
}

}  // namespace plimsoll
