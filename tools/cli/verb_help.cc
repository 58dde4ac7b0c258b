#include <ostream>

#include <fmt/format.h>

#include "tools/cli/command_line.h"
#include "tools/cli/verb.h"

namespace plimsoll {

Result<int> run_help(const Invocation& call) {
  if (call.line.arguments.empty()) {
    call.console.out << usage();
    return kExitOk;
  }
  const std::string& name = call.line.arguments.front();
  const Verb* verb = find_verb(name);
  if (verb == nullptr) {
    call.console.err << fmt::format("plimsoll help: there is no verb '{}'\n\n", name) << usage();
    return kExitUsage;
  }
  call.console.out << verb_usage(*verb);
  return kExitOk;
}

}  // namespace plimsoll
