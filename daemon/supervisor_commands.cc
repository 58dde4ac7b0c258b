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
constexpr std::size_t kAssignmentsMax = 256;

using Assignments = std::vector<std::pair<std::string, std::string>>;

Result<Assignments> read_assignments(const Json& arguments) {
  const Json* list = arguments.find("assignments");
  if (list == nullptr || !list->is_array() || list->as_array().empty()) {
    return invalid("reconfigure needs at least one NAME=VALUE");
  }
  if (list->as_array().size() > kAssignmentsMax) {
    return invalid(fmt::format("{} assignments in one command; at most {} are taken",
                               list->as_array().size(), kAssignmentsMax));
  }
  Assignments assignments;
  for (const Json& item : list->as_array()) {
    const bool is_pair = item.is_array() && item.as_array().size() == 2 &&
                         item.as_array()[0].is_string() && item.as_array()[1].is_string();
    if (!is_pair) return invalid("reconfigure: an assignment is no pair of two strings");
    assignments.emplace_back(item.as_array()[0].as_string(), item.as_array()[1].as_string());
  }
  return assignments;
}

Json changes_to_json(const OptionDiff& diff) {
  Json changes = Json::array();
  for (const OptionChange& change : diff.changes) {
    changes.push(Json::object({{"name", change.name},
                               {"before", change.before},
                               {"after", change.after},
                               {"effect", effect_name(change.effect)}}));
  }
  return changes;
}

}  // namespace

void Supervisor::reply(const std::string& peer, std::int64_t code, std::string message,
                       Json result) {
  out_.emplace_back(Send{peer, Reply{code, std::move(message), std::move(result)}});
}

void Supervisor::reply_error(const std::string& peer, const Error& error) {
  reply(peer, exit_code(error.code), error.message);
}

bool Supervisor::refuse_while_busy(const std::string& peer, const char* verb) {
  if (operation_.kind == OperationKind::none) return false;
  reply_error(peer, unavailable(fmt::format("{}: a {} is under way; `plimsoll status` shows it",
                                            verb, operation_name())));
  return true;
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
    restart_command(peer, now);
  } else if (verb == "reconfigure") {
    reconfigure_command(peer, command.arguments, now);
  } else {
    reply(peer, kUsage, fmt::format("plimsolld {} knows no command '{}'", setup_.version, verb));
  }
}

void Supervisor::start_command(const std::string& peer, const Json& arguments, TimePoint now) {
  if (refuse_while_busy(peer, "start")) return;
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
    return reply_error(peer, invalid("start: no model is given: set --model FILE, PLIMSOLL_MODEL "
                                     "or `model` in the configuration file"));
  }
  Operation& operation = begin_operation(OperationKind::start, now);
  operation.waiting = {peer};
  operation.target = target;
  out_.emplace_back(MakePlan{target});
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
  if (!is_running() && !failure_ && !ends_daemon) {
    return reply(peer, kNotRunning, "no deployment runs");
  }
  if (operation_.kind != OperationKind::none) {
    finish(exit_code(Code::unavailable),
           fmt::format("the {} was ended by `plimsoll stop`", operation_name()));
  }
  Operation& operation = begin_operation(OperationKind::stop, now);
  operation.waiting = {peer};
  operation.ends_daemon = ends_daemon;
  begin_stop(now);
}

void Supervisor::restart_command(const std::string& peer, TimePoint now) {
  if (refuse_while_busy(peer, "restart")) return;
  if (options_.values.model.empty()) {
    return reply(peer, kNotRunning, "no deployment runs, and there are no options to start one");
  }
  Operation& operation = begin_operation(OperationKind::restart, now);
  operation.waiting = {peer};
  operation.target = options_;
  out_.emplace_back(MakePlan{options_});
}

void Supervisor::reconfigure_command(const std::string& peer, const Json& arguments,
                                     TimePoint now) {
  if (refuse_while_busy(peer, "reconfigure")) return;
  const Result<Assignments> assignments = read_assignments(arguments);
  if (!assignments) return reply(peer, kUsage, assignments.error().message);
  Result<OptionSet> next = change_options(options_, *assignments);
  if (!next) return reply_error(peer, next.error());
  const OptionDiff diff = diff_options(options_.values, next->values);
  Json changes = changes_to_json(diff);
  if (diff.changes.empty()) {
    Json result = Json::object({{"changes", changes}, {"generation", generation_}});
    return reply(peer, 0, "nothing changes", std::move(result));
  }
  if (diff.strongest == Effect::fixed) {
    std::string names;
    for (const OptionChange& change : diff.changes) {
      if (change.effect == Effect::fixed) names += " " + change.name;
    }
    return reply_error(peer, invalid("only a new daemon takes other values of:" + names +
                                     " (`plimsoll stop --all`, then `plimsoll start`)"));
  }
  if (!is_running()) {
    options_ = std::move(*next);
    out_.emplace_back(SaveState{});
    Json result = Json::object({{"changes", changes}, {"generation", generation_}});
    return reply(peer, 0, "no deployment runs; the next start takes the new options",
                 std::move(result));
  }
  if (diff.strongest == Effect::live) return apply_live(peer, std::move(*next), changes);
  Operation& operation = begin_operation(OperationKind::reconfigure, now);
  operation.waiting = {peer};
  operation.target = *next;
  operation.previous = Previous{options_, deployment_->plan(), generation_};
  operation.changes = std::move(changes);
  out_.emplace_back(MakePlan{*next});
}

void Supervisor::apply_live(const std::string& peer, OptionSet next, Json changes) {
  options_ = std::move(next);
  generation_ = ++generations_;
  deployment_->set_live(options_, option_set_to_json(options_), out_);
  out_.emplace_back(ApplyLogLevel{options_.values.log_level});
  out_.emplace_back(SaveState{});
  Json result =
      Json::object({{"url", url_}, {"generation", generation_}, {"changes", std::move(changes)}});
  reply(peer, 0, "applied in place", std::move(result));
}

}  // namespace plimsoll
