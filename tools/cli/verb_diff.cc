#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>

#include <fmt/format.h>

#include "shared/generation/launch_diff.h"
#include "shared/generation/log_launch.h"
#include "shared/generation/plan_judge.h"
#include "shared/memory/foreign_log/log_file.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/model_input.h"
#include "tools/cli/generation_source.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

// One of the two launches: a generation of ours, or another server's log.
struct Side {
  LaunchFacts facts;
  const GenerationRecord* record = nullptr;
  std::unique_ptr<ForeignLog> log;
};
struct Sides {
  Side before;
  Side after;
};

bool is_number(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

Side side_of(const GenerationRecord& record) {
  return {.facts = launch_facts(record), .record = &record, .log = nullptr};
}

Result<Side> named_side(const Generations& all, const std::string& word) {
  if (is_number(word)) return side_of(*TRY(named_generation(all, word)));
  std::error_code failed;
  if (word != kStandardInput && !std::filesystem::exists(word, failed)) {
    return invalid(fmt::format("'{}' is neither the number of a generation nor a file", word));
  }
  auto log = std::make_unique<ForeignLog>(TRY(read_foreign_log(word)));
  LaunchFacts facts = launch_of_log(*log, log_label(word));
  return Side{.facts = std::move(facts), .record = nullptr, .log = std::move(log)};
}

// What worked before it: for one that failed the newest that did, also with the same options; for
// one that works the newest with others; for a log the newest at all.
Result<const GenerationRecord*> counterpart(const Generations& all, const Side& after) {
  const std::int64_t before = after.record != nullptr ? after.record->number : all.last_number + 1;
  const GenerationRecord* found = nullptr;
  if (after.record != nullptr && after.record->known_good) {
    found = last_known_good(all, before, after.record);
  }
  if (found == nullptr) found = last_known_good(all, before);
  if (found != nullptr) return found;
  return not_found(
      fmt::format("no generation before {} has served, so there is nothing to compare "
                  "it with (`plimsoll history` lists all)",
                  after.facts.label));
}

Result<Sides> sides_of(const Generations& all, const std::vector<std::string>& words) {
  Sides sides;
  sides.after = words.empty() ? side_of(all.records.back()) : TRY(named_side(all, words.back()));
  sides.before = words.size() == 2 ? TRY(named_side(all, words.front()))
                                   : side_of(*TRY(counterpart(all, sides.after)));
  for (Side* side : {&sides.before, &sides.after}) {
    const Side& other = side == &sides.before ? sides.after : sides.before;
    if (side->log != nullptr && other.record != nullptr) name_figures_like_ours(side->facts);
  }
  return sides;
}

// The plans are made again on this machine as it is now. Without the model nobody can tell.
class Judge {
 public:
  LaunchJudge judge(const Sides& sides) {
    if (sides.before.record == nullptr || sides.after.record == nullptr) {
      const LaunchFacts* own = sides.before.record != nullptr  ? &sides.before.facts
                               : sides.after.record != nullptr ? &sides.after.facts
                                                               : nullptr;
      return judge_of_logs(sides.before.log.get(), sides.after.log.get(), own);
    }
    const Result<OptionSet> before = option_set_from_json(sides.before.record->options);
    const Result<OptionSet> after = option_set_from_json(sides.after.record->options);
    if (!before || !after || after->values.model.empty()) return {};
    Result<Machine> machine = find_machine(after->values);
    if (!machine) return {};
    Result<PlanModels> models = read_plan_models(after->values, *machine);
    if (!models) return {};
    machine_ = std::move(*machine);
    models_ = std::move(*models);
    return plan_judge({.machine = *machine_,
                       .model = models_->model,
                       .draft = models_->draft_or_null(),
                       .before = *before,
                       .after = *after});
  }

 private:
  std::optional<Machine> machine_;
  std::optional<PlanModels> models_;
};

}  // namespace

Result<int> run_diff(const Invocation& call) {
  const std::vector<std::string>& words = call.line.arguments;
  // Two logs need no generation of ours.
  const bool needs_ours = words.size() < 2 || is_number(words[0]) || is_number(words[1]);
  const Result<Generations> all = needs_ours ? generations_of(call) : Generations{};
  if (!all) return report_no_generation(call, all.error(), false);
  const Result<Sides> sides = sides_of(*all, words);
  if (!sides) return report_no_generation(call, sides.error(), true);
  Judge judge;
  const LaunchFacts& before = sides->before.facts;
  const LaunchFacts& after = sides->after.facts;
  const std::vector<Difference> differences = compare_launches(before, after, judge.judge(*sides));
  if (call.line.json) {
    call.console.out << dump_json(launch_diff_json(before, after, differences), 2) << std::endl;
  } else {
    call.console.out << launch_diff_text(before, after, differences) << std::flush;
  }
  return kExitOk;
}

}  // namespace plimsoll
