#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {

Result<int> run_restart(const Invocation& call) {
  if (!is_daemon_running(call)) return report_not_running(call);
  Json arguments = Json::object();
  const auto path = call.line.flags.find("path");
  if (path != call.line.flags.end()) arguments.set("path", path->second);
  return report_reply(call, TRY(run_operation(call, {.verb = "restart", .arguments = arguments})));
}

}  // namespace plimsoll
