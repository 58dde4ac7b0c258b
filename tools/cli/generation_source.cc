#include "tools/cli/generation_source.h"

#include <charconv>
#include <ostream>

#include <fmt/format.h>

#include "shared/generation/abandoned.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"

namespace plimsoll {

std::filesystem::path state_folder_of(const Invocation& call) {
  const std::filesystem::path usual = state_folder(call.options.values);
  if (!is_daemon_running(call)) return usual;
  const Result<Json> status = ask_status(runtime_of(call));
  if (!status) return usual;
  return text_at(*status, {"state_dir"}, usual.string());
}

Result<Generations> settled_generations(const Invocation& call) {
  const std::filesystem::path state = state_folder_of(call);
  Generations all = TRY(read_generations(state));
  if (is_daemon_running(call) || has_daemon(state)) return all;
  // One that has just ended in order has said so meanwhile, as its last word.
  all = TRY(read_generations(state));
  for (GenerationRecord& record : all.records) (void)end_abandoned(record);
  return all;
}

Result<Generations> generations_of(const Invocation& call) {
  const std::filesystem::path state = state_folder_of(call);
  Generations all = TRY(settled_generations(call));
  for (const std::string& line : all.damaged) {
    call.console.err << fmt::format("plimsoll {}: cannot be read, left out: {}\n", call.line.verb,
                                    line);
  }
  if (all.records.empty()) {
    return not_found(
        fmt::format("{} has no record of a launch yet (--state-dir names another instance)",
                    generations_folder(state).string()));
  }
  return all;
}

int report_no_generation(const Invocation& call, const Error& error, bool has_some) {
  if (error.code == Code::invalid) return report_misuse(call, error.message);
  int code = exit_code(error.code);
  if (error.code == Code::not_found) code = has_some ? kExitFailed : kExitNotRunning;
  return report_reply(call, {.exit_code = code, .message = error.message, .result = {}});
}

Result<const GenerationRecord*> named_generation(const Generations& all, const std::string& word) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (failure != std::errc() || end != word.data() + word.size()) {
    return invalid(fmt::format("'{}' is no number of a generation", word));
  }
  if (const GenerationRecord* record = find_generation(all, number)) return record;
  return not_found(fmt::format("there is no generation {}: {} to {} are kept (`plimsoll history`)",
                               number, all.records.front().number, all.records.back().number));
}

}  // namespace plimsoll
