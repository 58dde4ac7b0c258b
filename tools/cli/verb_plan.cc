#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/collective/collective_choice.h"
#include "shared/collective/collective_forecast.h"
#include "shared/generation/fingerprint.h"
#include "shared/generation/layout_speeds.h"
#include "shared/generation/learned_terms.h"
#include "shared/generation/plan_outcome.h"
#include "shared/memory/foreign_log/log_file.h"
#include "shared/memory/foreign_log/log_plan.h"
#include "shared/memory/held_memory.h"
#include "shared/memory/layout_choice.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_report.h"
#include "shared/memory/model_input.h"
#include "tools/cli/generation_source.h"
#include "tools/cli/plan_bar.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

std::string all_terms() {
  std::string names;
  for (std::size_t i = 0; i < kTermCount; ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : ", ", term_name(static_cast<Term>(i)));
  }
  return names;
}

// Of the collective also how fast each backend would be, where that can be told.
Result<std::string> explanation(const MemoryPlan& plan,
                                const std::optional<CollectiveForecast>& forecast,
                                std::string_view name, bool as_json) {
  const std::optional<Term> term = term_from_name(name);
  const bool with_forecast = term == Term::collective && forecast;
  if (term && as_json) {
    Json json = explain_term_json(plan, *term);
    if (with_forecast) json.set("forecast", forecast_to_json(*forecast));
    return dump_json(json, 2) + "\n";
  }
  if (term) {
    return explain_term(plan, *term) + (with_forecast ? "\n" + explain_forecast(*forecast) : "");
  }
  return invalid(
      fmt::format("--explain: '{}' is no term of the plan; terms: {}", name, all_terms()));
}

// As the daemon does before it plans: the layout, where it was left to us, and what earlier
// launches of it teach.
Result<LayoutChoice> prepare(const std::filesystem::path& state, const PlanModels& models,
                             OptionSet& options, Machine& machine) {
  const std::vector<std::string> variables = own_variables();
  const std::vector<Setting> environment =
      read_fingerprint({.machine = machine,
                        .model = options.values.model,
                        .variables = variables,
                        .build = "plimsoll " PLIMSOLL_VERSION});
  const bool is_auto = is_layout_auto(options.values);
  LayoutChoice layout = TRY(choose_layout(
      machine, models.model, options, models.draft_or_null(),
      is_auto ? read_layout_speeds(state, {environment, options}) : std::vector<LayoutSpeed>()));
  options = with_layout(std::move(options), layout);
  add_learned(read_learned_terms(state, {environment, options}), machine);
  return layout;
}

// A picture is for others to look at, as the umask lets them.
Status write_picture(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content << std::flush;
  if (file) return {};
  return unavailable(fmt::format("write {}: {}", path, std::strerror(errno)));
}

// What earlier launches like this one came to; the newest of them in words.
constexpr std::size_t kEarlierShown = 3;

void show(const MemoryPlan& plan, const std::optional<CollectiveForecast>& forecast,
          const MemoryWindow& window, const std::vector<PlanOutcome>& earlier, Console& console) {
  console.out << memory_summary(plan) << '\n';
  for (const RankGroup& group : group_ranks(plan)) {
    console.out << plan_bar(group, {.cells = 64, .has_colour = console.has_colour}) << '\n';
  }
  console.out << memory_ledgers(plan);
  if (forecast) console.out << '\n' << forecast_report(*forecast);
  const std::string ends = plan.refusal ? "" : window_report(window);
  if (!ends.empty()) console.out << fmt::format("\nwould also fit: {}\n", ends);
  for (std::size_t i = 0; i < std::min(earlier.size(), kEarlierShown); ++i) {
    console.out << fmt::format("{}generation {} ({}): {}\n", i == 0 ? "\n" : "",
                               earlier[i].generation, outcome_name(earlier[i].outcome),
                               plan_outcome_line(earlier[i]));
  }
  if (earlier.size() > kEarlierShown) {
    const std::size_t more = earlier.size() - kEarlierShown;
    console.out << fmt::format("{} earlier launch{} like it: plimsoll history\n", more,
                               more == 1 ? "" : "es");
  }
  console.out << std::flush;
}

}  // namespace

namespace {

// The options of the call, and where they say nothing what the log says.
Result<OptionSet> options_of(const Invocation& call, std::vector<std::string>& notes) {
  const auto log = call.line.flags.find("from-log");
  OptionSet options = call.options;
  std::string hint;
  if (log != call.line.flags.end()) {
    const ForeignLog launch = TRY(read_foreign_log(log->second));
    options = with_log_options(std::move(options), launch, log_label(log->second));
    notes = log_plan_notes(launch);
    for (std::string& note : log_replay_notes(call.options, launch)) {
      notes.push_back(std::move(note));
    }
    const bool knows_devices =
        !options.values.machine.empty() || options.origin("devices").source != Source::built_in;
    if (is_layout_auto(options.values) && options.values.machine.empty()) {
      return invalid(
          "tp and dp cannot be auto beside a log: it does not say how many devices there are, and "
          "simulated ones are as many as the ranks; give both, or --machine FILE");
    }
    if (!knows_devices) {
      return invalid(
          fmt::format("{} does not say how large its devices are: add --devices "
                      "simulated:SIZE or --machine FILE (as in configs/machines)",
                      log->second));
    }
    if (const ForeignArg* model = launch.arg("model")) hint = "; the log names " + model->value;
  }
  if (!options.values.model.empty()) return options;
  return invalid(
      "no model is given: set --model FILE (a config.json is enough to plan for GPUs), "
      "PLIMSOLL_MODEL or `model` in the configuration file" +
      hint);
}

}  // namespace

Result<int> run_plan(const Invocation& call) {
  std::vector<std::string> notes;
  OptionSet set = TRY(options_of(call, notes));
  const Options& options = set.values;
  Machine machine = TRY(find_machine(options));
  const PlanModels models = TRY(read_plan_models(options, machine));
  const LayoutChoice layout = TRY(prepare(state_folder_of(call), models, set, machine));
  if (!layout.why.empty()) notes.push_back(layout.why);
  TRY(check_collective(machine, set, options.tp));
  // Where a start would be on this machine, with kernels of ours.
  if (machine.name.empty() && models.model.can_be_loaded()) {
    TRY(check_collective_code(machine, set, options.tp));
  }
  MemoryPlan plan = TRY(plan_memory(machine, models.model, set, models.draft_or_null()));
  // As a start would; a description has no processes that could be ended from here, and nobody else
  // is on simulated devices.
  const bool is_here =
      machine.name.empty() && std::ranges::none_of(machine.devices, &Device::is_simulated);
  if (plan.refusal && is_here && fits_alone(machine, set)) {
    plan.refusal->message += holders_text(all_holders(machine, {}));
  }
  plan.decisions.notes.insert(plan.decisions.notes.begin(), notes.begin(), notes.end());
  const std::optional<CollectiveForecast> forecast =
      forecast_collectives(machine, models.model, plan, set);
  const auto explain = call.line.flags.find("explain");
  if (explain != call.line.flags.end()) {
    call.console.out << TRY(explanation(plan, forecast, explain->second, call.line.json))
                     << std::flush;
  } else {
    const MemoryWindow window =
        TRY(plan_window(machine, models.model, set, models.draft_or_null()));
    const Result<Generations> all = settled_generations(call);
    const std::vector<PlanOutcome> earlier =
        all ? earlier_outcomes(*all, set) : std::vector<PlanOutcome>();
    if (call.line.json) {
      Json json = memory_plan_to_json(plan);
      json.set("window", memory_window_to_json(window));
      Json list = Json::array();
      for (const PlanOutcome& one : earlier) list.push(plan_outcome_json(one));
      json.set("earlier", std::move(list));
      json.set("collectives", forecast ? forecast_to_json(*forecast) : Json());
      call.console.out << dump_json(json, 2) << std::endl;
    } else {
      show(plan, forecast, window, earlier, call.console);
    }
  }
  const auto svg = call.line.flags.find("svg");
  if (svg != call.line.flags.end()) TRY(write_picture(svg->second, plan_svg(plan)));
  if (!plan.refusal) return kExitOk;
  call.console.err << plan.refusal->message << std::endl;
  return exit_code(plan.refusal->code);
}

}  // namespace plimsoll
