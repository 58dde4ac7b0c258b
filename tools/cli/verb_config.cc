#include <filesystem>
#include <ostream>

#include <fmt/format.h>

#include "shared/options/folders.h"
#include "shared/options/option_print.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr seconds kTimeout{10};

// Of the running daemon, else what a start with these flags, environment and file would use.
Result<OptionSet> options_in_use(const Invocation& call) {
  if (!is_daemon_running(call)) return call.options;
  DaemonClient client = TRY(DaemonClient::connect(runtime_of(call)));
  const Reply reply = TRY(client.ask({.verb = "config", .arguments = Json::object()}, kTimeout));
  if (reply.exit_code != 0) return internal_error(reply.message);
  return option_set_from_json(reply.result);
}

// What holds where nothing is said.
void fill_in(Options& options) {
  options.runtime_dir = runtime_folder(options).string();
  options.state_dir = state_folder(options).string();
  if (options.served_model_name.empty() && !options.model.empty()) {
    options.served_model_name = std::filesystem::path(options.model).stem().string();
  }
}

Result<int> show(const Invocation& call) {
  OptionSet options = TRY(options_in_use(call));
  fill_in(options.values);
  if (call.line.json) {
    call.console.out << dump_json(option_set_to_json(options), 2) << std::endl;
  } else {
    call.console.out << show_config(options, {.origins = call.line.has("origin")});
  }
  return kExitOk;
}

Result<int> check(const Invocation& call) {
  const std::size_t given = call.options.origins.size();
  if (call.line.json) {
    call.console.out
        << dump_json(Json::object({{"ok", true}, {"given", static_cast<std::int64_t>(given)}}), 2)
        << std::endl;
  } else {
    call.console.out << fmt::format(
        "no mistakes; {} option{} given, the others keep their "
        "defaults\n",
        given, given == 1 ? "" : "s");
  }
  return kExitOk;
}

}  // namespace

Result<int> run_config(const Invocation& call) {
  const std::string& what = call.line.arguments.front();
  if (what == "show") return show(call);
  if (what == "check") return check(call);  // mistakes were found before this was called
  if (what == "default") {
    print_text(call.console, call.line.json, default_config_file());
    return kExitOk;
  }
  if (what == "reference") {
    print_text(call.console, call.line.json, option_reference());
    return kExitOk;
  }
  if (what == "schema") {
    call.console.out << dump_json(option_schema(), 2) << std::endl;
    return kExitOk;
  }
  return report_misuse(
      call, fmt::format("'{}' is none of show, check, default, reference and schema", what));
}

}  // namespace plimsoll
