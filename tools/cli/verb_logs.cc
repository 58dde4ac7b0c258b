#include <charconv>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/json_view.h"
#include "tools/cli/log_tail.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLinesDefault = 100;
constexpr seconds kTimeout{10};

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

// "0.3": what lines of that rank have in them, and the daemon's about it. Errors: invalid.
Result<std::vector<std::string>> marks_of_rank(std::string_view text) {
  const std::size_t dot = text.find('.');
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (dot == std::string_view::npos || !is_number(text.substr(0, dot)) ||
      !is_number(text.substr(dot + 1))) {
    return invalid(fmt::format("--rank: '{}' is no rank; write replica and rank: 0.3", text));
  }
  return std::vector<std::string>{
      fmt::format(" worker {}: ", text),
      fmt::format("replica {}: rank {} ", text.substr(0, dot), text.substr(dot + 1))};
}

// A running daemon knows best; it may have been given another state folder than this call.
std::filesystem::path log_path(const Invocation& call) {
  std::filesystem::path usual = state_folder(call.options.values) / "plimsolld.log";
  if (!is_daemon_running(call)) return usual;
  Result<DaemonClient> client = DaemonClient::connect(runtime_of(call));
  if (!client) return usual;
  const Result<Reply> reply = client->ask({.verb = "logs", .arguments = Json::object()}, kTimeout);
  if (!reply) return usual;
  return text_at(reply->result, {"log_file"}, usual.string());
}

}  // namespace

Result<int> run_logs(const Invocation& call) {
  std::size_t lines = kLinesDefault;
  if (const auto given = call.line.flags.find("lines"); given != call.line.flags.end()) {
    const std::string& text = given->second;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), lines);
    if (failure != std::errc() || end != text.data() + text.size()) {
      return report_bad_value(call, fmt::format("-n: '{}' is no number of lines", text));
    }
  }
  std::vector<std::string> marks;
  if (const auto given = call.line.flags.find("rank"); given != call.line.flags.end()) {
    Result<std::vector<std::string>> found = marks_of_rank(given->second);
    if (!found) return report_misuse(call, found.error().message);
    marks = std::move(*found);
  }
  Result<LogTail> log = LogTail::open(log_path(call));
  if (!log && log.error().code == Code::not_found) {
    const std::string message =
        fmt::format("nothing has been logged yet: {} (--state-dir names another instance)",
                    log.error().message);
    return report_reply(call, {.exit_code = kExitNotRunning, .message = message, .result = {}});
  }
  if (!log) return log.error();
  const std::string text = TRY(log->last(lines, marks));
  if (text.empty() && !marks.empty()) {
    call.console.err << fmt::format(
        "plimsoll logs: {} has no line of rank {}; `plimsoll status` shows which ranks there are\n",
        log_path(call).string(), call.line.flags.find("rank")->second);
  }
  print(call, text);
  // A terminal's or pipe's end shows as a failed stream.
  while (call.line.has("follow") && call.console.out) {
    const std::string more = lines_with(TRY(log->more(seconds(1))), marks);
    if (!more.empty()) print(call, more);
  }
  return kExitOk;
}

}  // namespace plimsoll
