#include "shared/generation/launch_diff.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/generation/launch_suspects.h"
#include "shared/options/foreign_names.h"

namespace plimsoll {
namespace {

constexpr double kCannotMatter = 0.1;  // less suspicious ones are named in one line together
constexpr std::size_t kLineMax = 100;
constexpr std::string_view kOfRank = " of rank 0";
constexpr std::string_view kLedgerBudget = "budget of rank 0";
// What was chosen automatically and is now given by hand was copied from somewhere.
constexpr double kOverridesAuto = 0.05;

std::string source_text(const Setting& setting) {
  if (setting.place.empty()) return setting.source;
  return setting.source.empty() ? setting.place
                                : fmt::format("{}, {}", setting.source, setting.place);
}

const Setting* find_setting(const std::vector<Setting>& settings, std::string_view name) {
  const auto found = std::ranges::find(settings, name, &Setting::name);
  return found == settings.end() ? nullptr : &*found;
}

std::string usual_reason(DifferenceKind kind, std::string_view name) {
  return kind == DifferenceKind::environment ? surrounding_suspect(name).why
                                             : option_suspect(canonical_option(name)).why;
}

Difference difference_of(DifferenceKind kind, const Setting* before, const Setting* after) {
  Difference difference{.kind = kind, .name = before != nullptr ? before->name : after->name};
  difference.suspicion = usual_suspicion(kind, difference.name);
  difference.why = usual_reason(kind, difference.name);
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

bool is_unset(const Setting& setting) {
  return setting.value == "auto" || setting.value == "None" || setting.value.empty();
}

// Another server or version names more options: what the other side lacks says nothing where it is
// a default, or unset.
bool is_mere_default(DifferenceKind kind, const Setting& setting) {
  return kind == DifferenceKind::option && (setting.source == "default" || is_unset(setting));
}

// "auto" here is "None" there.
bool is_same(DifferenceKind kind, const Setting& before, const Setting& after) {
  return before.value == after.value ||
         (kind == DifferenceKind::option && is_unset(before) && is_unset(after));
}

void compare_settings(DifferenceKind kind, const std::vector<Setting>& before,
                      const std::vector<Setting>& after, std::vector<Difference>& out) {
  for (const Setting& setting : after) {
    const Setting* old = find_setting(before, setting.name);
    if (old == nullptr ? is_mere_default(kind, setting) : is_same(kind, *old, setting)) continue;
    out.push_back(difference_of(kind, old, &setting));
  }
  for (const Setting& setting : before) {
    if (find_setting(after, setting.name) != nullptr || is_mere_default(kind, setting)) continue;
    out.push_back(difference_of(kind, &setting, nullptr));
  }
}

const Figure* find_figure(const std::vector<Figure>& figures, std::string_view name) {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? nullptr : &*found;
}

Difference figure_difference(const Figure& figure, double before, double after) {
  return {.kind = DifferenceKind::figure,
          .name = figure.name,
          .before = figure_text(before, figure.unit),
          .after = figure_text(after, figure.unit)};
}

// A row of a ledger that one side lacks is nothing there, where both have a ledger.
bool is_ledger_row(const Figure& figure) { return figure.name.ends_with(kOfRank); }

void compare_figures(const std::vector<Figure>& before, const std::vector<Figure>& after,
                     std::vector<Difference>& out) {
  const bool have_ledgers =
      find_figure(before, kLedgerBudget) != nullptr && find_figure(after, kLedgerBudget) != nullptr;
  const auto add = [&](const Figure& figure, double old, double now) {
    Difference difference = figure_difference(figure, old, now);
    if (difference.before != difference.after) out.push_back(std::move(difference));
  };
  for (const Figure& figure : after) {
    const Figure* old = find_figure(before, figure.name);
    if (old == nullptr && !(have_ledgers && is_ledger_row(figure))) continue;
    add(figure, old == nullptr ? 0 : old->value, figure.value);
  }
  for (const Figure& figure : before) {
    if (!have_ledgers || !is_ledger_row(figure)) continue;
    if (find_figure(after, figure.name) == nullptr) add(figure, figure.value, 0);
  }
}

// SGLang's share and vLLM's are of different totals.
constexpr std::string_view kShares[] = {"mem-fraction-static", "gpu-memory-utilization"};

bool is_share(std::string_view name) {
  return std::ranges::find(kShares, canonical_option(name)) != std::end(kShares);
}

// The one that a launch has, a default too; nullptr: none, or both.
const Setting* share_of(const LaunchFacts& facts) {
  const Setting* found = nullptr;
  for (const Setting& setting : facts.options) {
    if (!is_share(setting.name) || is_unset(setting)) continue;
    if (found != nullptr) return nullptr;
    found = &setting;
  }
  return found;
}

std::string of_its_total(const Setting& share) {
  return share.value + (canonical_option(share.name) == kShares[0]
                            ? " of what is free before weights"
                            : " of the whole device");
}

// Where one launch has the one and the other the other, that is one difference and not two.
void merge_shares(const LaunchFacts& before, const LaunchFacts& after,
                  std::vector<Difference>& all) {
  const Setting* from = share_of(before);
  const Setting* to = share_of(after);
  if (from == nullptr || to == nullptr ||
      canonical_option(from->name) == canonical_option(to->name)) {
    return;
  }
  Difference both = difference_of(DifferenceKind::option, from, to);
  both.name = fmt::format("{} -> {}", from->name, to->name);
  both.before = of_its_total(*from);
  both.after = of_its_total(*to);
  both.why =
      "shares of different totals: the one of what is free before weights, for weights and KV; the "
      "other of the whole device, for all that it takes";
  std::erase_if(all, [&](const Difference& one) {
    if (one.kind != DifferenceKind::option || !is_share(one.name)) return false;
    both.suspicion = std::max(both.suspicion, one.suspicion);
    return true;
  });
  all.push_back(std::move(both));
}

Json optional_json(const std::optional<std::string>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string side_text(const std::optional<std::string>& value, const std::string& source) {
  if (!value) return "(none)";
  // As Python prints what is left to the server.
  const std::string shown = value->empty() ? "\"\"" : *value == "None" ? "(not set)" : *value;
  return source.empty() ? shown : fmt::format("{} ({})", shown, source);
}

// The reason stands behind, or below where it is long.
std::string line_of(const Difference& difference) {
  const std::string text = fmt::format("  {} {} -> {}", difference.name,
                                       side_text(difference.before, difference.before_source),
                                       side_text(difference.after, difference.after_source));
  if (difference.why.empty()) return text + "\n";
  const bool is_short = text.size() + difference.why.size() + 2 <= kLineMax &&
                        difference.why.find('\n') == std::string::npos;
  if (is_short) return fmt::format("{}: {}\n", text, difference.why);
  std::string below = text + ":\n";
  for (const std::string_view line : split(difference.why, '\n')) {
    if (!line.empty()) below += fmt::format("      {}\n", line);
  }
  return below;
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
  const int weight = kind == DifferenceKind::environment
                         ? surrounding_suspect(name).weight
                         : option_suspect(canonical_option(name)).weight;
  return weight / 100.0;
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
  // Another path of the same file.
  const Setting* hash = find_setting(before.environment, "model");
  const Setting* later = find_setting(after.environment, "model");
  if (hash != nullptr && later != nullptr && hash->value == later->value) {
    for (Difference& difference : all) {
      if (difference.kind != DifferenceKind::option || difference.name != "model") continue;
      difference.why = "the same weights under another name";
      difference.suspicion = 0;
    }
  }
  merge_shares(before, after, all);
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
  if (std::ranges::all_of(differences, [](const Difference& difference) {
        return difference.kind == DifferenceKind::figure;
      })) {
    text += "  no option differs, and nothing around them\n";
  }
  std::string figures;
  std::vector<std::string> harmless;
  for (const Difference& difference : differences) {
    if (difference.kind == DifferenceKind::figure) {
      figures += line_of(difference);
    } else if (difference.suspicion < kCannotMatter) {
      harmless.push_back(difference.name);
    } else {
      text += line_of(difference);
    }
  }
  if (!harmless.empty()) {
    text += fmt::format("  and, of no weight: {}\n", join(harmless, ", "));
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
