#include "shared/memory/simulation.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/json.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 1024 * 1024;
constexpr std::size_t kCostsMax = 1024;
constexpr std::array kPhases = {
    std::pair{std::string_view("start"), SimulatedPhase::start},
    std::pair{std::string_view("loading"), SimulatedPhase::loading},
    std::pair{std::string_view("loaded"), SimulatedPhase::loaded},
    std::pair{std::string_view("first step"), SimulatedPhase::first_step}};

Result<Bytes> read_size(const Json& value) {
  if (value.is_integer() && value.as_int() >= 0) return value.as_int();
  if (value.is_string()) return parse_bytes(value.as_string());
  return invalid("a size is text with a unit (\"900MiB\") or a number of bytes");
}

Result<SimulatedPhase> read_phase(const Json& value) {
  for (const auto& [name, phase] : kPhases) {
    if (value.is_string() && value.as_string() == name) return phase;
  }
  return invalid("when is start, loading, loaded or first step");
}

Result<std::vector<std::int64_t>> read_ranks(const Json& value) {
  std::vector<std::int64_t> ranks;
  const bool is_list = value.is_array() && !value.as_array().empty();
  if (is_list) {
    for (const Json& rank : value.as_array()) {
      if (rank.is_integer() && rank.as_int() >= 0) ranks.push_back(rank.as_int());
    }
  }
  if (is_list && ranks.size() == value.as_array().size()) return ranks;
  return invalid("ranks is a list of ranks within a replica ([0, 3])");
}

Result<milliseconds> read_duration(const Json& value) {
  if (value.is_string()) return parse_duration(value.as_string());
  return invalid("a duration is text with a unit (\"250ms\")");
}

Result<SimulatedCost> read_cost(const Json& json) {
  if (!json.is_object()) return invalid("is no object");
  SimulatedCost cost;
  bool has_bytes = false;
  for (const auto& [key, value] : json.as_object()) {
    if (key == "term" && value.is_string()) {
      cost.term = value.as_string();
    } else if (key == "bytes") {
      cost.bytes = TRY(read_size(value));
      has_bytes = true;
    } else if (key == "when") {
      cost.phase = TRY(read_phase(value));
    } else if (key == "ranks") {
      cost.ranks = TRY(read_ranks(value));
    } else {
      return invalid(fmt::format("'{}' is not one of term (text), bytes, when and ranks", key));
    }
  }
  if (cost.term.empty() || !has_bytes) return invalid("needs a term and its bytes");
  if (cost.term == "kv") return invalid("kv takes what the daemon commits");
  return cost;
}

Status read_member(const std::string& key, const Json& value, Simulation& simulation) {
  if (key == "load_time") {
    simulation.load_time = TRY_CONTEXT("load_time: ", read_duration(value));
    return {};
  }
  if (key == "step_time") {
    simulation.step_time = TRY_CONTEXT("step_time: ", read_duration(value));
    return {};
  }
  if (key != "costs" || !value.is_array() || value.as_array().size() > kCostsMax) {
    return invalid(
        fmt::format("'{}' is not one of costs (a list of at most {}), load_time and step_time", key,
                    kCostsMax));
  }
  for (std::size_t i = 0; i < value.as_array().size(); ++i) {
    simulation.costs.push_back(
        TRY_CONTEXT(fmt::format("costs[{}] ", i), read_cost(value.as_array()[i])));
  }
  return {};
}

}  // namespace

std::vector<SimulatedCost> Simulation::costs_of(std::int64_t rank) const {
  std::vector<SimulatedCost> own;
  for (const SimulatedCost& cost : costs) {
    const bool is_own =
        cost.ranks.empty() || std::ranges::find(cost.ranks, rank) != cost.ranks.end();
    if (is_own) own.push_back(cost);
  }
  return own;
}

Result<Simulation> parse_simulation(std::string_view json_text) {
  const Json json = TRY(parse_json(json_text));
  if (!json.is_object()) return invalid(fmt::format("it is {}, no object", json.type_name()));
  Simulation simulation;
  for (const auto& [key, value] : json.as_object()) TRY(read_member(key, value, simulation));
  return simulation;
}

Result<Simulation> read_simulation(const std::filesystem::path& path) {
  if (path.empty()) return Simulation{};
  const std::string text = TRY_CONTEXT("simulation: ", read_file(path, kFileBytesMax));
  return TRY_CONTEXT(fmt::format("simulation {}: ", path.string()), parse_simulation(text));
}

}  // namespace plimsoll
