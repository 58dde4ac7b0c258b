#include "daemon/reconfigure.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/base/units.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::size_t kAssignmentsMax = 256;
constexpr std::size_t kCauseBytesMax = 100;

Status read_assignments(const Json& list, ReconfigureRequest& request) {
  if (!list.is_array()) return invalid("assignments must be an array");
  if (list.as_array().size() > kAssignmentsMax) {
    return invalid(fmt::format("{} assignments in one command; at most {} are taken",
                               list.as_array().size(), kAssignmentsMax));
  }
  for (const Json& item : list.as_array()) {
    const bool is_pair = item.is_array() && item.as_array().size() == 2 &&
                         item.as_array()[0].is_string() && item.as_array()[1].is_string();
    if (!is_pair) return invalid("an assignment is no pair of two strings");
    request.assignments.emplace_back(item.as_array()[0].as_string(),
                                     item.as_array()[1].as_string());
  }
  return {};
}

// What of a change a running router cannot take over; empty: nothing.
std::string router_change(const OptionDiff& diff) {
  for (const OptionChange& change : diff.changes) {
    for (const std::string_view name : {"model", "served-model-name", "host", "port"}) {
      if (change.name == name) return change.name;
    }
  }
  return "";
}

// What a replica takes beside others: without the weights that it shares with them.
Bytes replica_bytes(const LaunchPlan& plan, std::int64_t index,
                    const std::vector<bool>& is_shared) {
  const auto first = static_cast<std::size_t>(index * plan.tp);
  Bytes sum = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(plan.tp); ++rank) {
    if (first + rank >= plan.rank_bytes.size()) break;
    sum += plan.rank_bytes[first + rank];
    const bool shares = rank < is_shared.size() && is_shared[rank];
    if (shares && first + rank < plan.weight_bytes.size()) sum -= plan.weight_bytes[first + rank];
  }
  return sum;
}

// Those weights, which are there once for all.
Bytes shared_bytes(const LaunchPlan& plan) {
  Bytes sum = 0;
  for (std::size_t rank = 0; rank < plan.shares_weights.size(); ++rank) {
    if (plan.shares_weights[rank] && rank < plan.weight_bytes.size())
      sum += plan.weight_bytes[rank];
  }
  return sum;
}

// Why old and new replicas do not fit together at some moment of that path; empty: they do.
std::string no_room(const LaunchPlan& present, const LaunchPlan& next, ChangePath path) {
  if (next.memory_available <= 0) {
    // After a device has failed, a new plan may have the same replicas in other places.
    const bool is_in_place = path == ChangePath::rolling && present.tp == next.tp &&
                             present.dp == next.dp &&
                             std::ranges::equal(present.memory.ranks, next.memory.ranks, {},
                                                &RankPlan::device_uuid, &RankPlan::device_uuid);
    return is_in_place ? "" : "how much its devices have for both is not known";
  }
  // What the new ranks would map is what the present ones of the same number do.
  const std::vector<bool>& is_shared = next.shares_weights;
  const Bytes shared = shared_bytes(next);
  Bytes old = 0;
  for (std::int64_t i = 0; i < present.dp; ++i) old += replica_bytes(present, i, is_shared);
  Bytes fresh = 0;
  for (std::int64_t i = 0; i < std::max(present.dp, next.dp); ++i) {
    if (path == ChangePath::rolling) old -= replica_bytes(present, i, is_shared);
    fresh += replica_bytes(next, i, is_shared);
    if (old + fresh + shared > next.memory_available) {
      const std::string once =
          shared > 0 ? fmt::format(" ({} of weights counted once)", format_bytes(shared)) : "";
      return fmt::format("old and new replicas need {} together for a while{}, {} are available",
                         format_bytes(old + fresh + shared), once,
                         format_bytes(next.memory_available));
    }
    if (path == ChangePath::beside) old -= replica_bytes(present, i, is_shared);
  }
  return "";
}

}  // namespace

Result<ReconfigureRequest> read_reconfigure(const Json& arguments) {
  ReconfigureRequest request;
  request.path = TRY(read_path(arguments));
  if (const Json* list = arguments.find("assignments")) {
    TRY(read_assignments(*list, request));
  }
  if (const Json* file = arguments.find("file_options")) {
    request.file = TRY(option_set_from_json(*file));
    const Json* path = arguments.find("file_path");
    if (path != nullptr && path->is_string()) request.file_path = path->as_string();
  }
  if (const Json* whole = arguments.find("options")) {
    request.whole = TRY(option_set_from_json(*whole));
  }
  if (request.assignments.empty() && !request.file && !request.whole) {
    return invalid("reconfigure needs at least one NAME=VALUE");
  }
  const Json* based_on = arguments.find("based_on");
  if (based_on != nullptr) {
    if (!based_on->is_integer()) return invalid("based_on must be an integer");
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
  static constexpr const char* kNames[] = {"none", "live", "beside", "rolling", "hold", "restart"};
  return kNames[static_cast<std::size_t>(path)];
}

Result<std::optional<ChangePath>> read_path(const Json& arguments) {
  const Json* path = arguments.find("path");
  if (path == nullptr || (path->is_string() && path->as_string() == "auto")) {
    return std::optional<ChangePath>();
  }
  for (const ChangePath one :
       {ChangePath::beside, ChangePath::rolling, ChangePath::hold, ChangePath::restart}) {
    if (path->is_string() && path->as_string() == change_path_name(one)) {
      return std::optional<ChangePath>(one);
    }
  }
  return invalid("path must be auto, beside, rolling, hold or restart");
}

Result<ChangePath> choose_path(const PathInput& input) {
  if (input.diff.changes.empty() && input.next == nullptr) return ChangePath::none;
  const bool is_live = !input.diff.changes.empty() && input.diff.strongest == Effect::live;
  if (is_live && !input.wanted) return ChangePath::live;
  if (input.present == nullptr || input.next == nullptr) return ChangePath::restart;
  const auto refuse = [&](const std::string& why) {
    return invalid(fmt::format("the path {} does not do for this change: {}",
                               change_path_name(*input.wanted), why));
  };
  std::string router = router_change(input.diff);
  const bool is_same = is_same_model(input.present->model_identity, input.next->model_identity);
  if (router.empty() && !is_same) router = "model: its files have changed";
  const std::string beside = no_room(*input.present, *input.next, ChangePath::beside);
  std::string rolling = no_room(*input.present, *input.next, ChangePath::rolling);
  const std::int64_t running = input.running.value_or(input.present->dp);
  if (rolling.empty() && running < 2) rolling = "only one replica runs";
  if (input.wanted) {
    const ChangePath wanted = *input.wanted;
    if (wanted == ChangePath::restart) return wanted;
    if (!router.empty()) return refuse("the router has to start again with another " + router);
    if (wanted == ChangePath::beside && !beside.empty()) return refuse(beside);
    if (wanted == ChangePath::rolling && !rolling.empty()) return refuse(rolling);
    return wanted;
  }
  if (!router.empty()) return ChangePath::restart;
  if (beside.empty()) return ChangePath::beside;
  return rolling.empty() ? ChangePath::rolling : ChangePath::hold;
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
