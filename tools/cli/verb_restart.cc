#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {

Result<int> run_restart(const Invocation& call) {
  if (!is_daemon_running(call)) return report_not_running(call);
  return report_reply(call,
                      TRY(run_operation(call, {.verb = "restart", .arguments = Json::object()})));
}

}  // namespace plimsoll
