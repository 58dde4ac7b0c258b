// The part of the supervisor that answers the CLI.

#include <algorithm>

#include <fmt/format.h>

#include "daemon/status_report.h"
#include "daemon/supervisor.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kUsage = 2;
constexpr std::int64_t kNotRunning = 4;
constexpr std::size_t kWaitingMax = 64;

}  // namespace

void Supervisor::reply(const std::string& peer, std::int64_t code, std::string message,
                       Json result) {
  out_.emplace_back(Send{peer, Reply{code, std::move(message), std::move(result)}});
}

void Supervisor::reply_error(const std::string& peer, const Error& error) {
  reply(peer, exit_code(error.code), error.message);
}

// Whether a change has to wait for the one that is under way, or is refused for a stop.
bool Supervisor::put_off(const std::string& peer, const Command& command) {
  if (operation_.kind == OperationKind::none) return false;
  if (operation_.kind == OperationKind::stop || waiting_.size() >= kWaitingMax) {
    reply_error(peer, unavailable(fmt::format("a {} is under way{}; `plimsoll status` shows it",
                                              operation_name(),
                                              waiting_.empty() ? "" : ", and many wait for it")));
    return true;
  }
  log(LogLevel::info,
      fmt::format("{}: waits until the {} is done", command.verb, operation_name()));
  waiting_.push_back({peer, command});
  return true;
}

void Supervisor::begin_what_waits(TimePoint now) {
  if (operation_.kind == OperationKind::stop || is_exiting_) {
    for (const Waiting& waiting : waiting_) {
      reply_error(waiting.peer, unavailable("a stop came before its turn"));
    }
    waiting_.clear();
  }
  while (operation_.kind == OperationKind::none && !waiting_.empty()) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    command(next.peer, next.command, now);
  }
}

void Supervisor::command(const std::string& peer, const Command& command, TimePoint now) {
  const std::string& verb = command.verb;
  if (verb == "status") {
    reply(peer, 0, "", status_json(*this, now));
  } else if (verb == "config") {
    reply(peer, 0, "", option_set_to_json(options_));
  } else if (verb == "plan") {
    if (!deployment_) {
      return reply(peer, kNotRunning, "no deployment runs, so there is no plan in use");
    }
    reply(peer, 0, "", deployment_->plan().plan_json);
  } else if (verb == "logs") {
    reply(peer, 0, "", Json::object({{"log_file", setup_.log_file}}));
  } else if (verb == "start") {
    start_command(peer, command.arguments, now);
  } else if (verb == "stop") {
    stop_command(peer, command.arguments, now);
  } else if (verb == "restart") {
    if (!put_off(peer, command)) restart_command(peer, command.arguments, now);
  } else if (verb == "reconfigure") {
    if (!put_off(peer, command)) reconfigure_command(peer, command.arguments, now);
  } else {
    reply(peer, kUsage, fmt::format("plimsolld {} knows no command '{}'", setup_.version, verb));
  }
}

void Supervisor::start_command(const std::string& peer, const Json& arguments, TimePoint now) {
  if (operation_.kind != OperationKind::none) {
    return reply_error(
        peer, unavailable(
                  fmt::format("a {} is under way; `plimsoll status` shows it", operation_name())));
  }
  if (is_running()) {
    return reply_error(
        peer, unavailable(fmt::format("a deployment is already running ({}, {}): `plimsoll "
                                      "reconfigure` changes it, `plimsoll stop` ends it",
                                      deployment_state_name(state()), url_)));
  }
  OptionSet target = options_;
  const Json* given = arguments.find("options");
  if (given != nullptr && given->is_object() && !given->as_object().empty()) {
    Result<OptionSet> read = option_set_from_json(*given);
    if (!read) return reply_error(peer, read.error());
    target = std::move(*read);
    // The folders are the daemon's own.
    target.values.runtime_dir = setup_.options.values.runtime_dir;
    target.values.state_dir = setup_.options.values.state_dir;
  }
  if (target.values.model.empty()) {
    return reply_error(peer, invalid("no model is given: set --model FILE, PLIMSOLL_MODEL or "
                                     "`model` in the configuration file"));
  }
  Operation& operation = begin_operation(OperationKind::start, now);
  operation.waiting = {peer};
  operation.target = target;
  const Json* cause = arguments.find("cause");
  if (cause != nullptr && cause->is_string()) operation.cause = cause->as_string();
  make_plan(target);
}

void Supervisor::stop_command(const std::string& peer, const Json& arguments, TimePoint now) {
  const Json* all = arguments.find("all");
  const bool ends_daemon = all != nullptr && all->is_bool() && all->as_bool();
  if (operation_.kind == OperationKind::stop) {
    if (operation_.waiting.size() >= kWaitingMax) {
      return reply_error(peer, unavailable("stop: it is under way, and many wait for it already"));
    }
    operation_.waiting.push_back(peer);
    operation_.ends_daemon = operation_.ends_daemon || ends_daemon;
    return;
  }
  const bool is_idle = operation_.kind == OperationKind::none;  // nor is anything planned
  if (!is_running() && is_idle && !failure_ && !ends_daemon) {
    return reply(peer, kNotRunning, "no deployment runs");
  }
  if (operation_.kind != OperationKind::none) {
    give_up(fmt::format("the {} was ended by `plimsoll stop`", operation_name()));
  }
  Operation& operation = begin_operation(OperationKind::stop, now);
  operation.waiting = {peer};
  operation.ends_daemon = ends_daemon;
  uncommit();
  begin_stop({}, now);
}

void Supervisor::restart_command(const std::string& peer, const Json& arguments, TimePoint now) {
  const Result<std::optional<ChangePath>> path = read_path(arguments);
  if (!path) return reply_error(peer, path.error());
  if (options_.values.model.empty()) {
    return reply(peer, kNotRunning, "no deployment runs, and there are no options to start one");
  }
  Operation& operation = begin_operation(OperationKind::restart, now);
  operation.waiting = {peer};
  operation.target = options_;
  operation.wanted_path = *path;
  make_plan(options_);
}

void Supervisor::reconfigure_command(const std::string& peer, const Json& arguments,
                                     TimePoint now) {
  if (const auto path = read_path(arguments); !path) return reply_error(peer, path.error());
  const Result<ReconfigureRequest> request = read_reconfigure(arguments);
  if (!request) return reply(peer, kUsage, request.error().message);
  if (request->based_on && *request->based_on != generation_) {
    return reply_error(
        peer,
        unavailable(fmt::format("the change was made for generation {}, and now it is {}: "
                                "`plimsoll diff {} {}` shows what has changed meanwhile",
                                *request->based_on, generation_, *request->based_on, generation_)));
  }
  Result<OptionSet> next = next_options(options_, setup_.options, *request);
  if (!next) return reply_error(peer, next.error());
  const OptionDiff diff = diff_options(options_.values, next->values);
  const Result<ChangePath> path = choose_path({.diff = diff, .wanted = request->path});
  if (!path) return reply_error(peer, path.error());
  Json result = Json::object({{"changes", changes_to_json(diff)},
                              {"path", change_path_name(*path)},
                              {"generation", generation_},
                              {"dry_run", request->is_dry_run}});
  // What was to run is to run, also where nothing changes but the files that it needs.
  const bool is_down = !is_running() && failure_ && !request->is_dry_run;
  if (is_down && diff.strongest != Effect::fixed) {
    Operation& operation = begin_operation(OperationKind::reconfigure, now);
    operation.waiting = {peer};
    operation.target = *next;
    operation.cause = request->cause;
    operation.given = given_with(*request);
    operation.result = std::move(result);
    make_plan(*next);
    return;
  }
  if (diff.changes.empty()) return reply(peer, 0, "nothing changes", std::move(result));
  if (diff.strongest == Effect::fixed) {
    std::string names;
    for (const OptionChange& change : diff.changes) {
      if (change.effect == Effect::fixed) names += " " + change.name;
    }
    return reply_error(peer, invalid("only a new daemon takes other values of:" + names +
                                     " (`plimsoll stop --all`, then `plimsoll start`)"));
  }
  if (!is_running()) {
    if (request->is_dry_run) {
      return reply(peer, 0, "no deployment runs; the next start would take these options",
                   std::move(result));
    }
    options_ = std::move(*next);
    out_.emplace_back(SaveState{});
    return reply(peer, 0,
                 "no deployment runs; the next `plimsoll start` takes the new options, as long as "
                 "this plimsolld lives",
                 std::move(result));
  }
  if (*path == ChangePath::live) {
    result.set("predicted_pause_s", 0.0);
    if (request->is_dry_run) {
      return reply(peer, 0, "it would be applied in place, without a pause", std::move(result));
    }
    return apply_live(peer, std::move(*next), *request, std::move(result), now);
  }
  Operation& operation = begin_operation(OperationKind::reconfigure, now);
  operation.waiting = {peer};
  operation.target = *next;
  operation.cause = request->cause;
  operation.is_dry_run = request->is_dry_run;
  operation.wanted_path = request->path;
  operation.given = given_with(*request);
  operation.previous = Previous{options_, deployment_->plan(), generation_, record_};
  operation.result = std::move(result);
  make_plan(*next);
}

// What a next daemon will be given: of files only its own configuration counts.
std::optional<OptionSet> Supervisor::given_with(const ReconfigureRequest& request) const {
  if (!request.file || request.file_path != setup_.config_file) return std::nullopt;
  return with_file(setup_.options, *request.file);
}

void Supervisor::apply_live(const std::string& peer, OptionSet next,
                            const ReconfigureRequest& request, Json result, TimePoint now) {
  if (std::optional<OptionSet> given = given_with(request)) given_ = std::move(*given);
  options_ = std::move(next);
  generation_ = ++generations_;
  const Json options = option_set_to_json(options_);
  deployment_->set_live(options_, options, out_);
  log(LogLevel::info, fmt::format("reconfigure: generation {} takes the place of {} by the path "
                                  "live, and is committed",
                                  generation_, record_.number));
  record_live_change(options, request.cause, now);
  commit();
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
  out_.emplace_back(SaveState{});
  out_.emplace_back(
      Notify{.status = fmt::format("{} (generation {})", serving_line(), generation_)});
  result.set("url", url_).set("generation", generation_);
  reply(peer, 0, "applied in place", std::move(result));
}

}  // namespace plimsoll
