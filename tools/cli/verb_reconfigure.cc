#include <charconv>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/options/option_paths.h"
#include "shared/options/option_table.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 1024 * 1024;

Result<Json> assignments_of(const std::vector<std::string>& words) {
  Json assignments = Json::array();
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid(
          fmt::format("'{}' is not NAME=VALUE, for example max-queued-requests=100", word));
    }
    const std::string name = word.substr(0, equals);
    const OptionRow* row = find_option(name);
    std::string value = word.substr(equals + 1);
    if (row != nullptr && row->kind == OptionKind::path) value = absolute_path(value);
    assignments.push(Json::array({name, std::move(value)}));
  }
  return assignments;
}

const std::string* flag_of(const Invocation& call, std::string_view name) {
  const auto found = call.line.flags.find(name);
  return found == call.line.flags.end() ? nullptr : &found->second;
}

// What a file says, with the line of each setting. Errors: all mistakes of the file.
Result<Json> file_options(const std::string& path) {
  const std::string text = TRY(read_file(path, kFileBytesMax));
  OptionSet set = TRY(parse_option_text(text, path));
  make_paths_absolute(set.values);
  return option_set_to_json(set);
}

}  // namespace

Result<int> run_reconfigure(const Invocation& call) {
  const Result<Json> assignments = assignments_of(call.line.arguments);
  if (!assignments) return report_misuse(call, assignments.error().message);
  Json arguments = Json::object();
  const std::string* file = flag_of(call, "file");
  if (assignments->as_array().empty() && file == nullptr) {
    return report_misuse(call, "nothing to change: give NAME=VALUE or --file FILE");
  }
  if (!assignments->as_array().empty()) arguments.set("assignments", *assignments);
  if (file != nullptr) {
    arguments.set("file_options", TRY(file_options(*file)));
    arguments.set("file_path", absolute_path(*file));
  }
  if (call.line.has("dry-run")) arguments.set("dry_run", true);
  if (const std::string* path = flag_of(call, "path")) arguments.set("path", *path);
  if (const std::string* word = flag_of(call, "based-on")) {
    std::int64_t number = 0;
    const auto [end, failure] = std::from_chars(word->data(), word->data() + word->size(), number);
    if (failure != std::errc() || end != word->data() + word->size()) {
      return report_bad_value(call,
                              fmt::format("--based-on: '{}' is no number of a generation", *word));
    }
    arguments.set("based_on", number);
  }
  if (!is_daemon_running(call)) return report_not_running(call);
  const Command command{.verb = "reconfigure", .arguments = std::move(arguments)};
  return report_reply(call, TRY(run_operation(call, command)));
}

}  // namespace plimsoll
