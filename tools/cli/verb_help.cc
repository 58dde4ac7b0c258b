#include <ostream>

#include <fmt/format.h>

#include "tools/cli/command_line.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {

Result<int> run_help(const Invocation& call) {
  if (call.line.arguments.empty()) {
    print_text(call.console, call.line.json, usage());
    return kExitOk;
  }
  const std::string& name = call.line.arguments.front();
  const Verb* verb = find_verb(name);
  if (verb == nullptr) {
    const int code = report_misuse(call, fmt::format("there is no verb '{}'", name));
    call.console.err << "\n" << usage();
    return code;
  }
  print_text(call.console, call.line.json, verb_usage(*verb));
  return kExitOk;
}

}  // namespace plimsoll
