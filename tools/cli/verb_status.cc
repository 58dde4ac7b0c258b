#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"
#include "tools/cli/render.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::size_t kStateFileBytesMax = 16 * 1024 * 1024;
constexpr seconds kAppearTimeout{10};  // for a daemon that is being launched

void print(const Invocation& call, const Json& status) {
  const bool only_collectives = call.line.has("collectives");
  if (call.line.json) {
    call.console.out << dump_json(only_collectives ? collectives_of(status) : status, 2) << "\n";
  } else {
    call.console.out << (only_collectives ? render_collectives(status) : render_status(status));
  }
  call.console.out << std::flush;
}

// What the daemon left in its state folder, or null.
Json last_known(const Invocation& call) {
  const Result<std::string> text =
      read_file(state_folder(call.options.values) / "state.json", kStateFileBytesMax);
  if (!text) return nullptr;
  Result<Json> json = parse_json(*text);
  return json && json->is_object() ? *std::move(json) : Json(nullptr);
}

int report_dead(const Invocation& call) {
  if (barred_from_daemon(runtime_of(call))) return report_not_running(call);
  const Json last = last_known(call);
  if (last.is_null() && !call.line.json) return report_not_running(call);
  const std::string message =
      fmt::format("plimsolld is not running in {}", runtime_of(call).string());
  call.console.err << "plimsoll status: " << message << std::endl;
  if (call.line.json) {
    Json json = Json::object(
        {{"exit_code", kExitNotRunning}, {"state", "not_running"}, {"message", message}});
    if (!last.is_null()) json.set("last_known", last);
    call.console.out << dump_json(json, 2) << std::endl;
  } else {
    call.console.out << render_last_known(last) << std::flush;
  }
  return kExitNotRunning;
}

// Until it serves, has failed or is gone.
Result<int> wait_for_serving(const Invocation& call) {
  const std::filesystem::path runtime = runtime_of(call);
  DaemonClient pause = TRY(DaemonClient::connect(runtime));
  ProgressView view(call.console);
  const TimePoint appears_by = now() + kAppearTimeout;
  bool has_appeared = false;
  while (true) {
    if (!is_daemon_listening(runtime)) {
      view.clear();
      if (has_appeared || now() > appears_by) return report_dead(call);
      pause.idle(milliseconds(20));
      continue;
    }
    const Result<Json> status = ask_status(runtime);
    if (!status && !is_daemon_listening(runtime)) continue;
    if (!status) return status.error();
    has_appeared = true;
    const std::string state = text_at(*status, {"state"});
    if (state == "serving" || state == "failed" || state == "stopped") {
      const std::string operation = text_at(*status, {"operation"});
      if (state != "stopped" || operation.empty()) {
        view.clear();
        print(call, *status);
        return state == "serving" ? kExitOk : state == "failed" ? kExitFailed : kExitNotRunning;
      }
    }
    view.show(*status);
    pause.idle(milliseconds(50));
  }
}

// Until Ctrl-C, or the daemon ends.
Result<int> watch(const Invocation& call) {
  const std::filesystem::path runtime = runtime_of(call);
  DaemonClient pause = TRY(DaemonClient::connect(runtime));
  while (is_daemon_listening(runtime)) {
    const Json status = TRY(ask_status(runtime));
    if (call.console.is_terminal && !call.line.json) call.console.out << "\033[H\033[2J";
    print(call, status);
    if (!call.console.out) return kExitOk;  // nobody reads any more
    pause.idle(seconds(1));
  }
  return report_dead(call);
}

}  // namespace

Result<int> run_status(const Invocation& call) {
  if (call.line.has("wait")) return wait_for_serving(call);
  if (!is_daemon_running(call)) return report_dead(call);
  if (call.line.has("watch")) return watch(call);
  print(call, TRY(ask_status(runtime_of(call))));
  return kExitOk;
}

}  // namespace plimsoll
