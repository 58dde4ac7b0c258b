#include <optional>
#include <ostream>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "shared/generation/plan_outcome.h"
#include "shared/options/option_diff.h"
#include "tools/cli/generation_source.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::size_t kChangesShown = 3;

// "tp 1 -> 2, threads auto -> 1": what it changed; "" where that is not known.
std::string changes_text(const Generations& all, const GenerationRecord& record) {
  const GenerationRecord* before = find_generation(all, record.based_on);
  if (before == nullptr) return "";
  const Result<OptionSet> old = option_set_from_json(before->options);
  const Result<OptionSet> now = option_set_from_json(record.options);
  if (!old || !now) return "";
  const OptionDiff diff = diff_options(old->values, now->values);
  std::string text;
  for (std::size_t i = 0; i < diff.changes.size() && i < kChangesShown; ++i) {
    const OptionChange& change = diff.changes[i];
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", change.name, change.before,
                        change.after);
  }
  if (diff.changes.size() > kChangesShown) {
    text += fmt::format(", {} more", diff.changes.size() - kChangesShown);
  }
  return text;
}

std::string line_of(const Generations& all, const GenerationRecord& record) {
  const std::string changes = changes_text(all, record);
  std::string text = fmt::format(
      "{:>5}  {:%Y-%m-%d %H:%M:%S}  {:<9} {:>9} {:>12}  {}{}\n", record.number,
      fmt::localtime(static_cast<std::time_t>(record.started)), outcome_name(record.outcome),
      record.started_in_s > 0 ? fmt::format("{:.2f} s", record.started_in_s) : "-",
      record.tokens_per_second > 0 ? fmt::format("{:.1f} tok/s", record.tokens_per_second) : "-",
      record.cause, changes.empty() ? "" : fmt::format(": {}", changes));
  if (!record.message.empty()) {
    text += fmt::format("{:>29}{}\n", "", record.message.substr(0, record.message.find('\n')));
  }
  if (const std::optional<PlanOutcome> outcome = plan_outcome(record)) {
    text += fmt::format("{:>29}memory: {}\n", "", plan_outcome_line(*outcome));
  }
  return text;
}

}  // namespace

Result<int> run_history(const Invocation& call) {
  const Result<Generations> found = generations_of(call);
  if (!found) return report_no_generation(call, found.error(), false);
  const Generations& all = *found;
  if (call.line.json) {
    Json list = Json::array();
    for (const GenerationRecord& record : all.records) list.push(generation_to_json(record));
    call.console.out << dump_json(Json::object({{"generations", std::move(list)}}), 2) << std::endl;
    return kExitOk;
  }
  call.console.out << fmt::format("{:>5}  {:<19}  {:<9} {:>9} {:>12}  {}\n", "", "started",
                                  "outcome", "after", "best", "by");
  for (const GenerationRecord& record : all.records) call.console.out << line_of(all, record);
  call.console.out << std::flush;
  return kExitOk;
}

}  // namespace plimsoll
