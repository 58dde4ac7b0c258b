#include "shared/memory/launch_diff.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/launch_suspects.h"

namespace plimsoll {
namespace {

constexpr double kBaseTolerance = 0.02;  // less free memory before loading than that is no event

const LaunchValue* find_value(const std::vector<LaunchValue>& values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &LaunchValue::name);
  return found == values.end() ? nullptr : &*found;
}

// "8192" and "8192.0" are the same setting, "True" and "true" too.
bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  double x = 0;
  double y = 0;
  const auto [end_a, bad_a] = std::from_chars(a.data(), a.data() + a.size(), x);
  const auto [end_b, bad_b] = std::from_chars(b.data(), b.data() + b.size(), y);
  if (bad_a == std::errc() && bad_b == std::errc() && end_a == a.data() + a.size() &&
      end_b == b.data() + b.size()) {
    return x == y;
  }
  return std::ranges::equal(a, b, [](char left, char right) {
    const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return small(left) == small(right);
  });
}

bool is_memory_short(LaunchEnd end) {  // after KV: a smaller KV would have helped
  return end == LaunchEnd::no_graphs || end == LaunchEnd::no_step;
}

// How much a change of KV says about how the later launch ended.
int suspicion_of_kv(const LaunchChange& change, LaunchEnd end) {
  const auto before = static_cast<double>(*change.kv_before);
  const auto after = static_cast<double>(*change.kv_after);
  if (before > 0 && after <= 0) return 100;
  if (after > before && is_memory_short(end)) return 95;
  if (after >= before || before <= 0) return 30;
  return 60 + static_cast<int>(35 * (before - after) / before);
}

void judge(LaunchChange& change, const LaunchRecord& before, const LaunchRecord& after,
           const KvWith& kv_with) {
  const Suspect suspect = change.kind == ChangeKind::option ? option_suspect(change.name)
                                                            : surrounding_suspect(change.name);
  change.suspicion = suspect.weight;
  change.why = suspect.why;
  if (change.kind == ChangeKind::option && kv_with) {
    // With the figures of one launch throughout, else another difference would be charged here.
    for (const LaunchRecord* launch : {&before, &after}) {
      change.kv_before = kv_with(*launch, change.before);
      change.kv_after = kv_with(*launch, change.after);
      if (change.kv_before && change.kv_after) break;
    }
  }
  if (change.kv_before && change.kv_after) {
    change.suspicion = std::max(suspicion_of_kv(change, after.end), std::min(suspect.weight, 50));
    change.why =
        fmt::format("KV {} -> {}", format_bytes(*change.kv_before), format_bytes(*change.kv_after));
  } else if (suspect.is_graphs) {
    for (const auto& [launch, value] :
         {std::pair(&before, &change.before), std::pair(&after, &change.after)}) {
      if (!launch->memory.graphs) continue;
      change.why += fmt::format("; {} with {}", format_bytes(*launch->memory.graphs),
                                value->value.empty() ? "its default" : value->value);
    }
    if (is_memory_short(after.end)) change.suspicion = 90;
  }
}

void compare(ChangeKind kind, const std::vector<LaunchValue>& a, const std::vector<LaunchValue>& b,
             std::vector<LaunchChange>& changes) {
  const auto add = [&](const LaunchValue& before, const LaunchValue& after) {
    LaunchChange change;
    change.kind = kind;
    change.name = before.name.empty() ? after.name : before.name;
    change.before = before;
    change.after = after;
    changes.push_back(std::move(change));
  };
  // A log that was cut, or another version, names fewer options: there absent is no change, unless
  // somebody gave it. A surrounding is looked for on purpose, so absent means absent.
  const bool is_whole = kind == ChangeKind::surrounding && !a.empty() && !b.empty();
  const auto counts = [&](const LaunchValue& value) {
    return is_whole || (kind == ChangeKind::option && value.provenance == "flag");
  };
  for (const LaunchValue& value : a) {
    const LaunchValue* other = find_value(b, value.name);
    if (other != nullptr && !same_value(value.value, other->value)) add(value, *other);
    if (other == nullptr && counts(value)) add(value, {});
  }
  for (const LaunchValue& value : b) {
    if (find_value(a, value.name) == nullptr && counts(value)) add({}, value);
  }
}

// Less free memory before loading, or heavier weights: nobody set it, and it decides.
void compare_figures(const LaunchRecord& a, const LaunchRecord& b,
                     std::vector<LaunchChange>& changes) {
  const auto add = [&](const char* name, Bytes before, Bytes after, int suspicion,
                       std::string why) {
    LaunchChange change;
    change.kind = ChangeKind::figure;
    change.name = name;
    change.before = {name, format_bytes(before), ""};
    change.after = {name, format_bytes(after), ""};
    change.why = std::move(why);
    change.suspicion = suspicion;
    changes.push_back(std::move(change));
  };
  const auto differs = [](Bytes before, Bytes after) {
    return std::abs(static_cast<double>(after - before)) >
           kBaseTolerance * static_cast<double>(std::max(std::abs(before), std::abs(after)));
  };
  if (a.memory.base && b.memory.base && differs(*a.memory.base, *b.memory.base)) {
    const Bytes gone = *a.memory.base - *b.memory.base;
    add("free before weights", *a.memory.base, *b.memory.base, gone > 0 ? 90 : 20,
        gone > 0 ? fmt::format("{} less: something else holds it, or it is another device",
                               format_bytes(gone))
                 : fmt::format("{} more", format_bytes(-gone)));
  }
  if (a.memory.weights && b.memory.weights && differs(*a.memory.weights, *b.memory.weights)) {
    const Bytes more = *b.memory.weights - *a.memory.weights;
    add("weights", *a.memory.weights, *b.memory.weights, more > 0 ? 85 : 20,
        more > 0 ? fmt::format("{} more of each rank's memory", format_bytes(more))
                 : fmt::format("{} less of each rank's memory", format_bytes(-more)));
  }
}

std::vector<LaunchFigure> figures_of(const LaunchMemory& a, const LaunchMemory& b) {
  std::vector<LaunchFigure> figures;
  const auto text = [](const std::optional<std::int64_t>& value, bool is_bytes) {
    if (!value) return std::string();
    return is_bytes ? format_bytes(*value) : fmt::format("{}", *value);
  };
  const auto add = [&](const char* name, std::optional<std::int64_t> LaunchMemory::*field,
                       bool is_bytes) {
    if (a.*field || b.*field) {
      figures.push_back({name, text(a.*field, is_bytes), text(b.*field, is_bytes)});
    }
  };
  add("device", &LaunchMemory::total, true);
  add("free before weights", &LaunchMemory::base, true);
  add("weights", &LaunchMemory::weights, true);
  add("free after weights", &LaunchMemory::left, true);
  add("KV", &LaunchMemory::kv, true);
  add("KV tokens", &LaunchMemory::kv_tokens, false);
  add("graphs", &LaunchMemory::graphs, true);
  add("free at the end", &LaunchMemory::spare, true);
  return figures;
}

std::string shown(const LaunchValue& value) {
  if (value.value.empty()) return "(absent)";
  return value.provenance.empty() ? value.value
                                  : fmt::format("{} ({})", value.value, value.provenance);
}

Json value_json(const LaunchValue& value) {
  if (value.value.empty()) return nullptr;
  return Json::object({{"value", value.value}, {"provenance", value.provenance}});
}

}  // namespace

const char* launch_end_name(LaunchEnd end) {
  switch (end) {
    case LaunchEnd::unknown:
      return "unknown";
    case LaunchEnd::served:
      return "served";
    case LaunchEnd::no_weights:
      return "weights did not fit";
    case LaunchEnd::no_kv:
      return "no memory for KV";
    case LaunchEnd::no_graphs:
      return "out of memory while capturing graphs";
    case LaunchEnd::no_step:
      return "out of memory while serving";
    case LaunchEnd::neighbour:
      return "memory held by others";
    case LaunchEnd::other:
      return "failed for another reason";
  }
  return "unknown";
}

const char* change_kind_name(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::option:
      return "option";
    case ChangeKind::surrounding:
      return "surrounding";
    case ChangeKind::figure:
      return "figure";
  }
  return "option";
}

std::optional<Bytes> kv_with_fraction(const LaunchRecord& launch, const LaunchValue& value) {
  if (value.name != "mem-fraction-static" || !launch.memory.base || !launch.memory.left) return {};
  double fraction = 0;
  const char* end = value.value.data() + value.value.size();
  const auto [rest, failure] = std::from_chars(value.value.data(), end, fraction);
  if (failure != std::errc() || rest != end || !(fraction >= 0 && fraction <= 1)) return {};
  const double reserve = static_cast<double>(*launch.memory.base) * (1 - fraction);
  return *launch.memory.left - static_cast<Bytes>(std::llround(reserve));
}

LaunchDiff diff_launches(const LaunchRecord& before, const LaunchRecord& after,
                         const KvWith& kv_with) {
  LaunchDiff diff;
  compare(ChangeKind::option, before.options, after.options, diff.changes);
  compare(ChangeKind::surrounding, before.surroundings, after.surroundings, diff.changes);
  for (LaunchChange& change : diff.changes) judge(change, before, after, kv_with);
  compare_figures(before, after, diff.changes);
  std::ranges::stable_sort(diff.changes, [](const LaunchChange& a, const LaunchChange& b) {
    return a.suspicion != b.suspicion ? a.suspicion > b.suspicion : a.name < b.name;
  });
  diff.figures = figures_of(before.memory, after.memory);
  return diff;
}

std::string change_line(const LaunchChange& change) {
  return fmt::format("{} {} -> {}{}{}", change.name, shown(change.before), shown(change.after),
                     change.why.empty() ? "" : ": ", change.why);
}

std::string launch_diff_report(const LaunchDiff& diff, const LaunchRecord& before,
                               const LaunchRecord& after) {
  std::string text =
      fmt::format("{} ({}) -> {} ({})\n\n", before.label, launch_end_name(before.end), after.label,
                  launch_end_name(after.end));
  std::vector<std::string> harmless;
  int count = 0;
  for (const LaunchChange& change : diff.changes) {
    if (change.suspicion < kSuspicionMin) {
      harmless.push_back(change.name);
      continue;
    }
    text += fmt::format("{:>3}. {}\n", ++count, change_line(change));
  }
  if (diff.changes.empty()) text += "nothing differs that both launches name\n";
  if (!harmless.empty()) {
    text +=
        fmt::format("     also differ, and cannot matter here: {}\n", fmt::join(harmless, ", "));
  }
  if (!diff.figures.empty()) text += "\n";
  for (const LaunchFigure& figure : diff.figures) {
    text += fmt::format("  {:<20} {:>12}  {:>12}\n", figure.name,
                        figure.before.empty() ? "-" : figure.before,
                        figure.after.empty() ? "-" : figure.after);
  }
  return text;
}

Json launch_diff_to_json(const LaunchDiff& diff, const LaunchRecord& before,
                         const LaunchRecord& after) {
  const auto side = [](const LaunchRecord& launch) {
    return Json::object({{"label", launch.label}, {"end", launch_end_name(launch.end)}});
  };
  Json changes = Json::array();
  for (const LaunchChange& change : diff.changes) {
    Json json = Json::object({{"kind", change_kind_name(change.kind)},
                              {"name", change.name},
                              {"before", value_json(change.before)},
                              {"after", value_json(change.after)},
                              {"why", change.why},
                              {"suspicion", change.suspicion}});
    if (change.kv_before) json.set("kv_bytes_before", *change.kv_before);
    if (change.kv_after) json.set("kv_bytes_after", *change.kv_after);
    changes.push(std::move(json));
  }
  Json figures = Json::array();
  for (const LaunchFigure& figure : diff.figures) {
    figures.push(
        Json::object({{"name", figure.name}, {"before", figure.before}, {"after", figure.after}}));
  }
  return Json::object({{"before", side(before)},
                       {"after", side(after)},
                       {"changes", std::move(changes)},
                       {"figures", std::move(figures)}});
}

}  // namespace plimsoll
