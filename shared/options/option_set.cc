#include "shared/options/option_set.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::array<Source, 5> kSources = {Source::built_in, Source::file, Source::environment,
                                            Source::flag, Source::reconfigured};

std::string unknown_option(std::string_view name) {
  const std::string meant = nearest_option(name);
  return fmt::format("unknown option '{}'{}", name,
                     meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

std::optional<Source> parse_source(std::string_view name) {
  for (const Source source : kSources) {
    if (name == source_name(source)) return source;
  }
  return std::nullopt;
}

// One member of the JSON form into the set; the mistake where it cannot be read.
Status read_member(OptionSet& set, const OptionRow& row, const Json& member) {
  const Json* value = member.find("value");
  const Json* source = member.find("source");
  if (value == nullptr) return invalid("needs an object with a \"value\"");
  Status stored = set_option_json(set.values, row, *value);
  if (!stored) return stored;
  if (source == nullptr) return {};
  const std::optional<Source> known =
      source->is_string() ? parse_source(source->as_string()) : std::nullopt;
  if (!known) return invalid("\"source\" is none that we know");
  if (*known == Source::built_in) return {};
  const Json* place = member.find("place");
  if (place != nullptr && !place->is_string()) return invalid("\"place\" must be a string");
  set.origins[std::string(row.name)] = {*known, place == nullptr ? "" : place->as_string()};
  return {};
}

}  // namespace

const char* source_name(Source source) {
  switch (source) {
    case Source::built_in:
      return "default";
    case Source::file:
      return "file";
    case Source::environment:
      return "environment";
    case Source::flag:
      return "flag";
    case Source::reconfigured:
      return "reconfigured";
  }
  return "default";
}

Origin OptionSet::origin(std::string_view name) const {
  const auto found = origins.find(name);
  return found == origins.end() ? Origin{} : found->second;
}

Result<OptionSet> change_options(const OptionSet& current,
                                 std::span<const std::pair<std::string, std::string>> assignments) {
  OptionSet changed = current;
  std::vector<std::string> mistakes;
  std::set<std::string_view> given;
  for (const auto& [name, text] : assignments) {
    const OptionRow* row = find_option(name);
    if (row == nullptr) {
      mistakes.push_back(unknown_option(name));
      continue;
    }
    if (!given.insert(row->name).second) {
      mistakes.push_back(fmt::format("{}: it is set twice in this change", row->name));
      continue;
    }
    const Status stored = set_option(changed.values, *row, text);
    if (!stored) mistakes.push_back(fmt::format("{}: {}", row->name, stored.error().message));
    changed.origins[std::string(row->name)] = {Source::reconfigured, ""};
  }
  if (!mistakes.empty()) return invalid(join(mistakes, "\n"));
  return changed;
}

Json option_set_to_json(const OptionSet& set) {
  Json out = Json::object();
  for (const OptionRow& row : option_table()) {
    const Origin origin = set.origin(row.name);
    Json member = Json::object(
        {{"value", option_json(set.values, row)}, {"source", source_name(origin.source)}});
    if (!origin.place.empty()) member.set("place", origin.place);
    out.set(row.name, std::move(member));
  }
  return out;
}

Result<OptionSet> option_set_from_json(const Json& json) {
  if (!json.is_object()) {
    return invalid(fmt::format("options must be a JSON object, not {}", json.type_name()));
  }
  OptionSet set;
  std::vector<std::string> mistakes;
  for (const auto& [name, member] : json.as_object()) {
    const OptionRow* row = find_option(name);
    if (row == nullptr) {
      mistakes.push_back(unknown_option(name));
      continue;
    }
    const Status read = read_member(set, *row, member);
    if (!read) mistakes.push_back(fmt::format("{}: {}", name, read.error().message));
  }
  if (!mistakes.empty()) return invalid(join(mistakes, "\n"));
  return set;
}

}  // namespace plimsoll
