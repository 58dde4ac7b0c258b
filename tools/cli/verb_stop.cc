#include <algorithm>

#include "tools/cli/daemon_client.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr seconds kEndTimeout{10};

// The reply comes before the daemon's last steps.
Status wait_until_gone(const Invocation& call) {
  const std::filesystem::path runtime = runtime_of(call);
  DaemonClient client = TRY(DaemonClient::connect(runtime));
  const TimePoint deadline = now() + kEndTimeout;
  while (is_daemon_listening(runtime)) {
    if (now() > deadline) return timed_out("the deployment has stopped, but plimsolld still runs");
    client.idle(milliseconds(20));
  }
  return {};
}

}  // namespace

Result<int> run_stop(const Invocation& call) {
  if (!is_daemon_running(call)) return report_not_running(call);
  const bool all = call.line.has("all");
  const Result<Reply> reply =
      run_operation(call, {.verb = "stop", .arguments = Json::object({{"all", all}})});
  if (!reply) {
    // With --all its end is what was asked for.
    if (!all || is_daemon_running(call)) return reply.error();
    return report_reply(call, {.exit_code = 0, .message = "stopped", .result = {}});
  }
  if (all && reply->exit_code == 0) TRY(wait_until_gone(call));
  return report_reply(call, *reply);
}

}  // namespace plimsoll
