#include "shared/generation/launch_diff.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/options/option_table.h"

namespace plimsoll {
namespace {

struct NamePart {
  std::string_view part;
  double suspicion;
};

// Of options of any server, by what their names contain; the first that fits counts.
constexpr std::array<NamePart, 28> kOptionParts = {{
    {"mem-fraction", 0.9},
    {"memory-utilization", 0.9},
    {"device-memory", 0.9},
    {"kv-cache", 0.85},
    {"total-tokens", 0.85},
    {"cuda-graph", 0.8},
    {"context-length", 0.8},
    {"model-len", 0.8},
    {"running-requests", 0.75},
    {"num-seqs", 0.75},
    {"draft", 0.7},
    {"speculative", 0.7},
    {"quantization", 0.7},
    {"tp", 0.7},
    {"tensor-parallel", 0.7},
    {"expert-parallel", 0.7},
    {"ep-size", 0.7},
    {"all-reduce", 0.65},
    {"prefill", 0.6},
    {"batched-tokens", 0.6},
    {"attention", 0.55},
    {"dtype", 0.55},
    {"port", 0.05},
    {"host", 0.05},
    {"log-", 0.05},
    {"seed", 0.05},
    {"served-model-name", 0.05},
    {"-dir", 0.05},
}};
constexpr double kOptionOther = 0.4;

constexpr std::array<NamePart, 14> kEnvironmentParts = {{
    {"model", 0.7},
    {"devices", 0.65},
    {"driver", 0.6},
    {"cuda", 0.55},
    {"CUDA_", 0.55},
    {"NCCL_", 0.55},
    {"nccl", 0.55},
    {"memory", 0.5},
    {"OMP_", 0.4},
    {"PLIMSOLL_", 0.4},
    {"numa", 0.4},
    {"pcie", 0.4},
    {"kernel", 0.35},
    {"build", 0.35},
}};
constexpr double kEnvironmentOther = 0.2;
// What was chosen automatically and is now given by hand was copied from somewhere.
constexpr double kOverridesAuto = 0.05;

std::string dashed(std::string_view name) {
  std::string out = lower(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::string source_text(const Setting& setting) {
  if (setting.place.empty()) return setting.source;
  return setting.source.empty() ? setting.place
                                : fmt::format("{}, {}", setting.source, setting.place);
}

const Setting* find_setting(const std::vector<Setting>& settings, std::string_view name) {
  const auto found = std::ranges::find(settings, name, &Setting::name);
  return found == settings.end() ? nullptr : &*found;
}

Difference difference_of(DifferenceKind kind, const Setting* before, const Setting* after) {
  Difference difference{.kind = kind, .name = before != nullptr ? before->name : after->name};
  difference.suspicion = usual_suspicion(kind, difference.name);
  if (before != nullptr) {
    difference.before = before->value;
    difference.before_source = source_text(*before);
  }
  if (after != nullptr) {
    difference.after = after->value;
    difference.after_source = source_text(*after);
  }
  const bool was_chosen =
      before == nullptr || before->source == "auto" || before->source == "default";
  const bool is_given = after != nullptr && after->source != "auto" && after->source != "default";
  if (kind == DifferenceKind::option && was_chosen && is_given) {
    difference.suspicion = std::min(difference.suspicion + kOverridesAuto, 1.0);
  }
  return difference;
}

void compare_settings(DifferenceKind kind, const std::vector<Setting>& before,
                      const std::vector<Setting>& after, std::vector<Difference>& out) {
  for (const Setting& setting : after) {
    const Setting* old = find_setting(before, setting.name);
    if (old != nullptr && old->value == setting.value) continue;
    out.push_back(difference_of(kind, old, &setting));
  }
  for (const Setting& setting : before) {
    if (find_setting(after, setting.name) != nullptr) continue;
    out.push_back(difference_of(kind, &setting, nullptr));
  }
}

void compare_figures(const std::vector<Figure>& before, const std::vector<Figure>& after,
                     std::vector<Difference>& out) {
  for (const Figure& figure : after) {
    const auto old = std::ranges::find(before, figure.name, &Figure::name);
    if (old == before.end()) continue;
    Difference difference{.kind = DifferenceKind::figure,
                          .name = figure.name,
                          .before = figure_text(old->value, figure.unit),
                          .after = figure_text(figure.value, figure.unit)};
    if (difference.before != difference.after) out.push_back(std::move(difference));
  }
}

Json optional_json(const std::optional<std::string>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string side_text(const std::optional<std::string>& value, const std::string& source) {
  if (!value) return "(none)";
  const std::string shown = value->empty() ? "\"\"" : *value;
  return source.empty() ? shown : fmt::format("{} ({})", shown, source);
}

std::string line_of(const Difference& difference) {
  std::string text = fmt::format("  {}: {} -> {}\n", difference.name,
                                 side_text(difference.before, difference.before_source),
                                 side_text(difference.after, difference.after_source));
  for (const std::string_view line : split(difference.why, '\n')) {
    if (!line.empty()) text += fmt::format("      {}\n", line);
  }
  return text;
}

Json head_json(const LaunchFacts& facts) {
  return Json::object({{"label", facts.label}, {"outcome", facts.outcome}});
}

}  // namespace

const char* difference_kind_name(DifferenceKind kind) {
  static constexpr const char* kNames[] = {"option", "environment", "figure"};
  return kNames[static_cast<std::size_t>(kind)];
}

double usual_suspicion(DifferenceKind kind, std::string_view name) {
  if (kind == DifferenceKind::figure) return 0;
  if (kind == DifferenceKind::environment) {
    for (const NamePart& row : kEnvironmentParts) {
      if (name.find(row.part) != std::string_view::npos) return row.suspicion;
    }
    return kEnvironmentOther;
  }
  const OptionRow* ours = find_option(name);
  const std::string wanted = ours != nullptr ? std::string(ours->name) : dashed(name);
  for (const NamePart& row : kOptionParts) {
    // Short names must be meant as a whole: "tp" is no part of "https".
    const bool fits = row.part.size() <= 2 ? wanted == row.part || wanted.starts_with("tp-")
                                           : wanted.find(row.part) != std::string::npos;
    if (fits) return row.suspicion;
  }
  return kOptionOther;
}

std::vector<Difference> compare_launches(const LaunchFacts& before, const LaunchFacts& after,
                                         const LaunchJudge& judge) {
  std::vector<Difference> all;
  compare_settings(DifferenceKind::option, before.options, after.options, all);
  compare_settings(DifferenceKind::environment, before.environment, after.environment, all);
  for (Difference& difference : all) {
    if (!judge) break;
    if (std::optional<Reason> reason = judge(difference)) {
      difference.why = std::move(reason->text);
      difference.suspicion = std::clamp(reason->suspicion, 0.0, 1.0);
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), &Difference::suspicion);
  compare_figures(before.figures, after.figures, all);
  return all;
}

std::string figure_text(double value, std::string_view unit) {
  const char* sign = value < 0 ? "-" : "";
  if (unit == "bytes") {
    return fmt::format("{}{}", sign, format_bytes(static_cast<Bytes>(std::abs(value))));
  }
  if (unit == "tokens" || unit == "blocks" || unit.empty()) {
    const std::string digits = fmt::format("{:.0f}", std::abs(value));
    std::string grouped;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
      grouped += digits[i];
    }
    return fmt::format("{}{}{}{}", sign, grouped, unit.empty() ? "" : " ", unit);
  }
  return fmt::format("{:.2f} {}", value, unit);
}

std::string launch_diff_text(const LaunchFacts& before, const LaunchFacts& after,
                             const std::vector<Difference>& differences) {
  const auto head = [](const LaunchFacts& facts) {
    return facts.outcome.empty() ? facts.label : fmt::format("{} ({})", facts.label, facts.outcome);
  };
  std::string text = fmt::format("{}\n  -> {}\n\n", head(before), head(after));
  if (differences.empty()) return text + "nothing differs\n";
  std::string figures;
  for (const Difference& difference : differences) {
    (difference.kind == DifferenceKind::figure ? figures : text) += line_of(difference);
  }
  if (!figures.empty()) text += fmt::format("\nwith the effect that\n{}", figures);
  return text;
}

Json launch_diff_json(const LaunchFacts& before, const LaunchFacts& after,
                      const std::vector<Difference>& differences) {
  Json list = Json::array();
  for (const Difference& difference : differences) {
    list.push(Json::object({{"kind", difference_kind_name(difference.kind)},
                            {"name", difference.name},
                            {"before", optional_json(difference.before)},
                            {"after", optional_json(difference.after)},
                            {"before_source", difference.before_source},
                            {"after_source", difference.after_source},
                            {"why", difference.why},
                            {"suspicion", difference.suspicion}}));
  }
  return Json::object({{"before", head_json(before)},
                       {"after", head_json(after)},
                       {"differences", std::move(list)}});
}

}  // namespace plimsoll
