#include "shared/generation/layout_speeds.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

// That speed depends on, beside the layout.
constexpr std::array<std::string_view, 13> kOfSpeed = {"activations",
                                                       "devices",
                                                       "machine",
                                                       "simulation",
                                                       "cpu-path",
                                                       "threads",
                                                       "kv-cache-dtype",
                                                       "num-continuous-decode-steps",
                                                       "disable-radix-cache",
                                                       "collective",
                                                       "draft-model",
                                                       "chunked-prefill-size",
                                                       "step-time-max"};

bool is_comparable(const GenerationRecord& record, const LearnQuestion& question) {
  const auto same = [](const Setting& a, const Setting& b) {
    return a.name == b.name && a.value == b.value;
  };
  if (!std::ranges::equal(record.environment, question.environment, same)) return false;
  const Result<OptionSet> options = option_set_from_json(record.options);
  return options && std::ranges::all_of(kOfSpeed, [&](std::string_view name) {
           const OptionRow* row = find_option(name);
           return row != nullptr &&
                  option_text(options->values, *row) == option_text(question.options.values, *row);
         });
}

}  // namespace

std::vector<LayoutSpeed> layout_speeds(const Generations& all, const LearnQuestion& question) {
  std::vector<LayoutSpeed> speeds;
  for (const GenerationRecord& record : all.records) {
    if (record.tokens_per_second <= 0 || record.speed_requests <= 0) continue;
    if (!is_comparable(record, question)) continue;
    const Result<MemoryPlan> plan = memory_plan_from_json(record.plan);
    if (!plan) continue;
    speeds.push_back({.tp = plan->tp,
                      .dp = plan->dp,
                      .requests = record.speed_requests,
                      .tokens_per_second = record.tokens_per_second,
                      .from = fmt::format("generation {}", record.number)});
  }
  return speeds;
}

std::vector<LayoutSpeed> read_layout_speeds(const std::filesystem::path& state,
                                            const LearnQuestion& question) {
  const Result<Generations> all = read_generations(state);
  return all ? layout_speeds(*all, question) : std::vector<LayoutSpeed>();
}

}  // namespace plimsoll
