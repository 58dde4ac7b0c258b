#include <ostream>

#include "shared/generation/log_launch.h"
#include "shared/memory/foreign_log/log_file.h"
#include "shared/memory/foreign_log/log_report.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

struct NamedLog {
  std::string label;
  ForeignLog log;
};

Result<NamedLog> read_log(const std::string& path) {
  return NamedLog{log_label(path), TRY(read_foreign_log(path))};
}

bool has_failed(const ForeignLog& log) { return log.end != ForeignEnd::served; }

// What one log says of the model is true of the other, where it is the same model.
LogHints hints_of(const ForeignLog& log, const ForeignLog& other) {
  if (log.model_type != other.model_type) return {};
  return {.kv_bytes_per_token = other.kv_bytes_per_token(), .context = other.context};
}

int explain_one(const Invocation& call, const NamedLog& one) {
  const LogExplanation explanation = explain_log(one.log, one.label);
  if (call.line.json) {
    Json json = log_report_json(one.log, explanation);
    json.set("file", call.line.arguments[0]);
    call.console.out << dump_json(json, 2) << std::endl;
  } else {
    call.console.out << log_report(one.log, explanation) << std::flush;
  }
  return kExitOk;
}

int explain_two(const Invocation& call, const NamedLog& a, const NamedLog& b) {
  const LaunchFacts before = launch_of_log(a.log, a.label);
  const LaunchFacts after = launch_of_log(b.log, b.label);
  const std::vector<Difference> differences =
      compare_launches(before, after, judge_of_logs(&a.log, &b.log));
  const LogExplanation first = explain_log(a.log, a.label, hints_of(a.log, b.log));
  const LogExplanation second = explain_log(b.log, b.label, hints_of(b.log, a.log));
  if (call.line.json) {
    Json logs = Json::array();
    logs.push(log_report_json(a.log, first));
    logs.push(log_report_json(b.log, second));
    Json json = launch_diff_json(before, after, differences);
    json.set("logs", std::move(logs));
    call.console.out << dump_json(json, 2) << std::endl;
    return kExitOk;
  }
  call.console.out << launch_diff_text(before, after, differences);
  // The one that failed needs words; the differences have said the arguments.
  const bool is_first = has_failed(a.log) && !has_failed(b.log);
  call.console.out << "\n"
                   << log_report(is_first ? a.log : b.log, is_first ? first : second,
                                 {.arguments = false})
                   << std::flush;
  return kExitOk;
}

}  // namespace

Result<int> run_explain(const Invocation& call) {
  const std::vector<std::string>& paths = call.line.arguments;
  const NamedLog first = TRY(read_log(paths[0]));
  if (paths.size() == 1) return explain_one(call, first);
  const NamedLog second = TRY(read_log(paths[1]));
  return explain_two(call, first, second);
}

}  // namespace plimsoll
