#include <ostream>

#include <fmt/format.h>

#include "tools/cli/daemon_client.h"
#include "tools/cli/daemon_launch.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"
#include "tools/cli/render.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr milliseconds kTurn{50};
constexpr seconds kListenTimeout{60};  // from launch to its control socket
constexpr seconds kEndTimeout{30};     // from a failed start to the daemon's end

int report_serving(const Invocation& call, const std::string& url, const Json& status) {
  if (call.line.json) {
    call.console.out << dump_json(status, 2) << std::endl;
  } else {
    call.console.out << "serving at " << url << "\n\n" << render_curl(url) << std::endl;
  }
  return kExitOk;
}

// A daemon runs already, perhaps without a deployment.
Result<int> start_in_daemon(const Invocation& call) {
  Json arguments = Json::object();
  // Without a model here the daemon starts what it had, or has from its own configuration.
  if (!call.options.values.model.empty()) {
    OptionSet options = call.options;
    // The daemon may work in another folder.
    for (std::string* path :
         {&options.values.model, &options.values.machine, &options.values.simulation}) {
      if (!path->empty()) *path = std::filesystem::absolute(*path).string();
    }
    arguments.set("options", option_set_to_json(options));
  }
  const Reply reply = TRY(run_operation(call, {.verb = "start", .arguments = arguments}));
  if (reply.exit_code != 0) return report_reply(call, reply);
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

// Launches the daemon with the same flags, so that it sees where each value came from.
Result<int> launch_and_wait(const Invocation& call) {
  if (call.options.values.model.empty()) {
    return invalid(
        "no model is given: set --model FILE, PLIMSOLL_MODEL or `model` in the "
        "configuration file");
  }
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
