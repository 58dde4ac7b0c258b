#include <charconv>
#include <ostream>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "tools/cli/log_tail.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLinesDefault = 100;

void print(const Invocation& call, const std::string& text) {
  if (!call.line.json) {
    call.console.out << text << std::flush;
    return;
  }
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    call.console.out << dump_json(Json::object({{"line", line}})) << std::endl;
  }
}

}  // namespace

Result<int> run_logs(const Invocation& call) {
  std::size_t lines = kLinesDefault;
  if (const auto given = call.line.flags.find("lines"); given != call.line.flags.end()) {
    const std::string& text = given->second;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), lines);
    if (failure != std::errc() || end != text.data() + text.size()) {
      call.console.err << fmt::format("plimsoll logs: -n: '{}' is no number of lines\n", text);
      return kExitUsage;
    }
  }
  Result<LogTail> log = LogTail::open(state_folder(call.options.values) / "plimsolld.log");
  if (!log && log.error().code == Code::not_found) {
    call.console.err << fmt::format(
        "plimsoll logs: nothing has been logged yet: {} (--state-dir names another instance)\n",
        log.error().message);
    return kExitNotRunning;
  }
  if (!log) return log.error();
  print(call, TRY(log->last(lines)));
  // A terminal's or pipe's end shows as a failed stream.
  while (call.line.has("follow") && call.console.out) {
    const std::string text = TRY(log->more(seconds(1)));
    if (!text.empty()) print(call, text);
  }
  return kExitOk;
}

}  // namespace plimsoll
