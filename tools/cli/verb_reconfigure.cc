#include <ostream>

#include <fmt/format.h>

#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {

Result<int> run_reconfigure(const Invocation& call) {
  Json assignments = Json::array();
  for (const std::string& word : call.line.arguments) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return report_misuse(
          call, fmt::format("'{}' is not NAME=VALUE, for example max-queued-requests=100", word));
    }
    assignments.push(Json::array({word.substr(0, equals), word.substr(equals + 1)}));
  }
  if (!is_daemon_running(call)) return report_not_running(call);
  const Command command{.verb = "reconfigure",
                        .arguments = Json::object({{"assignments", std::move(assignments)}})};
  return report_reply(call, TRY(run_operation(call, command)));
}

}  // namespace plimsoll
