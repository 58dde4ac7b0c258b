#include <ctime>
#include <filesystem>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/machine/machine_file.h"
#include "shared/memory/machine_source.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

// What a verb of ours says, called with --json.
struct Said {
  std::string out;
  std::string err;
};

Said ask(const Invocation& call, Result<int> (*run)(const Invocation&),
         std::vector<std::string> arguments,
         std::map<std::string, std::string, std::less<>> flags = {}) {
  CommandLine line = call.line;
  line.json = true;
  line.arguments = std::move(arguments);
  line.flags = std::move(flags);
  std::ostringstream out, err;
  Console console{out, err, call.console.in};
  const Result<int> code =
      run({.line = line, .sources = call.sources, .options = call.options, .console = console});
  if (!code) err << code.error().message << '\n';
  return {out.str(), err.str()};
}

// Its JSON, or why there is none.
Json part_of(const Said& said) {
  Result<Json> json = parse_json(said.out);
  if (json) return *std::move(json);
  return Json::object({{"missing", said.err.empty() ? json.error().message : said.err}});
}

// One {"line": ...} a line of the log.
Json log_of(const Said& said) {
  Json lines = Json::array();
  for (const std::string_view text : split(said.out, '\n')) {
    const Result<Json> json = parse_json(text);
    const Json* line = json ? json->find("line") : nullptr;
    if (line != nullptr) lines.push(*line);
  }
  if (lines.as_array().empty()) return Json::object({{"missing", said.err}});
  return lines;
}

Json machine_of(const Invocation& call) {
  const Result<Machine> machine = find_machine(call.options.values);
  return machine ? machine_to_json(*machine) : Json::object({{"missing", machine.error().message}});
}

std::filesystem::path file_of(const Invocation& call, std::int64_t time) {
  if (!call.line.arguments.empty()) return call.line.arguments.front();
  return fmt::format("plimsoll-bundle-{:%Y%m%d-%H%M%S}.json",
                     fmt::gmtime(static_cast<std::time_t>(time)));
}

}  // namespace

Result<int> run_bundle(const Invocation& call) {
  const std::int64_t time = unix_seconds();
  const std::filesystem::path file = file_of(call, time);
  if (std::filesystem::exists(file)) {
    return report_misuse(
        call, fmt::format("{} is there already: name another file or remove it", file.string()));
  }
  const Json bundle = Json::object({
      {"time", time},
      {"version", part_of(ask(call, run_version, {}))},
      {"machine", machine_of(call)},
      {"status", part_of(ask(call, run_status, {}))},
      {"options", part_of(ask(call, run_config, {"show"}, {{"origin", ""}}))},
      {"history", part_of(ask(call, run_history, {}))},
      {"log", log_of(ask(call, run_logs, {}, {{"lines", "1000000"}}))},
  });
  TRY(write_file(file, dump_json(bundle, 1) + "\n"));
  const std::string message = fmt::format(
      "{}: version, machine, status, options, history and log of this instance; it names files, "
      "processes and users, but has no prompt and no answer",
      file.string());
  return report_reply(call, {.exit_code = kExitOk,
                             .message = message,
                             .result = Json::object({{"file", file.string()}})});
}

}  // namespace plimsoll
