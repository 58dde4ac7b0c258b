#include "daemon/reconfigure.h"

#include <fmt/format.h>

#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::size_t kAssignmentsMax = 256;
constexpr std::size_t kCauseBytesMax = 100;

Status read_assignments(const Json& list, ReconfigureRequest& request) {
  if (!list.is_array()) return invalid("reconfigure: assignments must be an array");
  if (list.as_array().size() > kAssignmentsMax) {
    return invalid(fmt::format("{} assignments in one command; at most {} are taken",
                               list.as_array().size(), kAssignmentsMax));
  }
  for (const Json& item : list.as_array()) {
    const bool is_pair = item.is_array() && item.as_array().size() == 2 &&
                         item.as_array()[0].is_string() && item.as_array()[1].is_string();
    if (!is_pair) return invalid("reconfigure: an assignment is no pair of two strings");
    request.assignments.emplace_back(item.as_array()[0].as_string(),
                                     item.as_array()[1].as_string());
  }
  return {};
}

}  // namespace

Result<ReconfigureRequest> read_reconfigure(const Json& arguments) {
  ReconfigureRequest request;
  if (const Json* list = arguments.find("assignments")) {
    TRY(read_assignments(*list, request));
  }
  if (const Json* file = arguments.find("file_options")) {
    request.file = TRY_CONTEXT(std::string("reconfigure: "), option_set_from_json(*file));
  }
  if (const Json* whole = arguments.find("options")) {
    request.whole = TRY_CONTEXT(std::string("reconfigure: "), option_set_from_json(*whole));
  }
  if (request.assignments.empty() && !request.file && !request.whole) {
    return invalid("reconfigure needs at least one NAME=VALUE");
  }
  const Json* based_on = arguments.find("based_on");
  if (based_on != nullptr) {
    if (!based_on->is_integer()) return invalid("reconfigure: based_on must be an integer");
    request.based_on = based_on->as_int();
  }
  const Json* cause = arguments.find("cause");
  if (cause != nullptr && cause->is_string()) {
    request.cause = cause->as_string().substr(0, kCauseBytesMax);
  }
  const Json* dry_run = arguments.find("dry_run");
  request.is_dry_run = dry_run != nullptr && dry_run->is_bool() && dry_run->as_bool();
  return request;
}

OptionSet with_file(const OptionSet& given, const OptionSet& file) {
  OptionSet next = file;
  for (const OptionRow& row : option_table()) {
    const Origin origin = given.origin(row.name);
    if (origin.source != Source::flag && origin.source != Source::environment) continue;
    // It was this text that option_text() made, so it is one that is read.
    (void)set_option(next.values, row, option_text(given.values, row));
    next.origins[std::string(row.name)] = origin;
  }
  next.values.runtime_dir = given.values.runtime_dir;
  next.values.state_dir = given.values.state_dir;
  return next;
}

Result<OptionSet> next_options(const OptionSet& present, const OptionSet& given,
                               const ReconfigureRequest& request) {
  OptionSet next = present;
  if (request.file) next = with_file(given, *request.file);
  if (request.whole) {
    next = *request.whole;
    next.values.runtime_dir = given.values.runtime_dir;
    next.values.state_dir = given.values.state_dir;
  }
  if (request.assignments.empty()) return next;
  return change_options(next, request.assignments);
}

const char* change_path_name(ChangePath path) {
  static constexpr const char* kNames[] = {"none", "live", "restart"};
  return kNames[static_cast<std::size_t>(path)];
}

ChangePath change_path(const OptionDiff& diff) {
  if (diff.changes.empty()) return ChangePath::none;
  return diff.strongest == Effect::live ? ChangePath::live : ChangePath::restart;
}

Json changes_to_json(const OptionDiff& diff) {
  Json changes = Json::array();
  for (const OptionChange& change : diff.changes) {
    changes.push(Json::object({{"name", change.name},
                               {"before", change.before},
                               {"after", change.after},
                               {"effect", effect_name(change.effect)}}));
  }
  return changes;
}

}  // namespace plimsoll
