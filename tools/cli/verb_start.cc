#include <optional>
#include <ostream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/base/text.h"
#include "shared/options/option_paths.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/daemon_launch.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"
#include "tools/cli/render.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr milliseconds kTurn{50};
constexpr seconds kConfigTimeout{10};
constexpr seconds kListenTimeout{60};  // from launch to its control socket
constexpr seconds kEndTimeout{30};     // from a failed start to the daemon's end

int report_serving(const Invocation& call, const std::string& url, const Json& status) {
  if (call.line.json) {
    call.console.out << dump_json(status, 2) << std::endl;
  } else {
    const std::string lowered = text_at(status, {"lowered"});
    call.console.out << "serving at " << url << "\n";
    if (!lowered.empty()) call.console.out << "note: " << lowered << "\n";
    call.console.out << "\n" << render_curl(url) << std::endl;
  }
  return kExitOk;
}

// What the daemon was given and this start does not repeat, so that it does not hold any more.
std::string dropped_options(const Invocation& call) {
  Result<DaemonClient> client = DaemonClient::connect(runtime_of(call));
  if (!client) return "";
  const Result<Reply> reply =
      client->ask({.verb = "config", .arguments = Json::object()}, kConfigTimeout);
  const Result<OptionSet> had = reply && reply->exit_code == 0 ? option_set_from_json(reply->result)
                                                               : Result<OptionSet>(OptionSet{});
  if (!had) return "";
  std::vector<std::string> dropped;
  for (const OptionRow& row : option_table()) {
    const bool is_of_daemon = row.effect == Effect::fixed;
    const bool is_said_here = call.options.origin(row.name).source != Source::built_in;
    const bool was_said = had->origin(row.name).source != Source::built_in;
    const std::string before = option_text(had->values, row);
    const std::string after = option_text(call.options.values, row);
    if (is_of_daemon || is_said_here || !was_said || before == after) continue;
    dropped.push_back(after.empty() ? fmt::format("{} was {}", row.name, before)
                                    : fmt::format("{} was {} and is {}", row.name, before, after));
  }
  return join(dropped, ", ");
}

// What only a daemon that starts can take: the one that runs keeps its own.
std::string ignored_options(const Invocation& call) {
  Result<DaemonClient> client = DaemonClient::connect(runtime_of(call));
  if (!client) return "";
  const Result<Reply> reply =
      client->ask({.verb = "config", .arguments = Json::object()}, kConfigTimeout);
  if (!reply || reply->exit_code != 0) return "";
  const Result<OptionSet> had = option_set_from_json(reply->result);
  if (!had) return "";
  std::vector<std::string> ignored;
  for (const OptionRow& row : option_table()) {
    if (row.effect != Effect::fixed) continue;
    if (call.options.origin(row.name).source == Source::built_in) continue;
    const std::string kept = option_text(had->values, row);
    const std::string said = option_text(call.options.values, row);
    if (kept == said || row.name == "runtime-dir") continue;
    ignored.push_back(fmt::format("{} stays {}", row.name, kept.empty() ? "unset" : kept));
  }
  return join(ignored, ", ");
}

// A daemon runs already, perhaps without a deployment.
Result<int> start_in_daemon(const Invocation& call) {
  Json arguments = Json::object();
  std::string dropped;
  // Without a model here the daemon starts what it had, or has from its own configuration.
  if (!call.options.values.model.empty()) {
    OptionSet options = call.options;
    make_paths_absolute(options.values);
    dropped = dropped_options(call);
    arguments.set("options", option_set_to_json(options));
  }
  const Reply reply = TRY(run_operation(call, {.verb = "start", .arguments = arguments}));
  if (reply.exit_code != 0) return report_reply(call, reply);
  if (!dropped.empty()) {
    call.console.err << fmt::format(
                            "plimsoll start: options of the daemon do not hold for a start that "
                            "names a model: {}; repeat here what is to stay\n",
                            dropped)
                     << std::flush;
  }
  if (const std::string ignored = ignored_options(call); !ignored.empty()) {
    call.console.err << fmt::format(
                            "plimsoll start: the daemon that runs keeps what only a new one takes: "
                            "{}\n",
                            ignored)
                     << std::flush;
  }
  const Json status = TRY(ask_status(runtime_of(call)));
  return report_serving(call, text_at(reply.result, {"url"}), status);
}

std::vector<std::string> daemon_arguments(const Invocation& call) {
  std::vector<std::string> arguments = call.line.option_flags;
  if (!call.line.config.empty()) {
    arguments.insert(arguments.end(), {"--config", call.line.config});
  }
  return arguments;
}

// The daemon's own words and exit code.
int report_end(const Invocation& call, const LaunchedDaemon& daemon, int code) {
  const std::string errors = daemon_errors(daemon.output());
  call.console.err << errors
                   << fmt::format("plimsoll start: plimsolld ended with exit code {}\n", code);
  if (call.line.json) {
    call.console.out << dump_json(Json::object({{"exit_code", code}, {"message", errors}}), 2)
                     << std::endl;
  }
  return code == 0 ? kExitFailed : code;
}

// As root it would take the service's folders, and leave in them what the service cannot use.
std::optional<Error> owner_of_folder(const Invocation& call) {
  const std::filesystem::path state = state_folder(call.options.values);
  struct stat found {};
  const bool is_foreign = ::geteuid() == 0 && call.options.values.state_dir.empty() &&
                          ::stat(state.c_str(), &found) == 0 && found.st_uid != 0;
  if (!is_foreign) return std::nullopt;
  return unavailable(
      fmt::format("the folder {} belongs to user {}, as a service's does: `systemctl start "
                  "plimsoll` starts that; a deployment of its own gets --state-dir and "
                  "--runtime-dir",
                  state.string(), found.st_uid));
}

// Launches the daemon with the same flags, so that it sees where each value came from.
Result<int> launch_and_wait(const Invocation& call) {
  if (call.options.values.model.empty()) {
    return invalid(
        "no model is given: set --model FILE, PLIMSOLL_MODEL or `model` in the "
        "configuration file");
  }
  if (std::optional<Error> owner = owner_of_folder(call)) return *owner;
  const std::filesystem::path runtime = runtime_of(call);
  const std::filesystem::path program = TRY(sibling_program("plimsolld"));
  LaunchedDaemon daemon = TRY(LaunchedDaemon::launch(program, daemon_arguments(call)));
  ProgressView view(call.console);
  TimePoint gives_up = now() + kListenTimeout;
  bool has_failed = false;
  while (true) {
    if (const std::optional<int> code = daemon.watch(kTurn)) {
      view.clear();
      return report_end(call, daemon, *code);
    }
    const Result<Json> status = is_daemon_listening(runtime) ? ask_status(runtime) : Json();
    const std::string state = status ? text_at(*status, {"state"}) : "";
    if (state == "serving") {
      view.clear();
      return report_serving(call, text_at(*status, {"url"}), *status);
    }
    // While it answers and has not failed, its own deadlines count.
    const bool fails_now = state == "failed";
    if (fails_now && !has_failed) gives_up = now() + kEndTimeout;
    has_failed = fails_now;
    if (!state.empty() && !fails_now) {
      gives_up = now() + kListenTimeout;
      view.show(*status);
    }
    if (now() < gives_up) continue;
    view.clear();
    call.console.err << daemon_errors(daemon.output());
    if (fails_now) return internal_error(text_at(*status, {"reason"}, "the deployment failed"));
    return timed_out(
        fmt::format("plimsolld was launched but does not answer in {}", runtime.string()));
  }
}

}  // namespace

Result<int> run_start(const Invocation& call) {
  return is_daemon_running(call) ? start_in_daemon(call) : launch_and_wait(call);
}

}  // namespace plimsoll
