// Simulation: what simulated devices do beside the plan (`--simulation FILE`): what terms really
// take, when, and how long things last. Without a file they behave as planned.
//
// docs/simulation.md describes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

enum class SimulatedPhase {
  start,       // before the weights
  loading,     // when half of the weights are there
  loaded,      // before the worker says what it measured
  first_step,  // after KV has been taken
};

// The term of other processes' memory; every other name is a term of the plan or a hidden one.
constexpr std::string_view kNeighbourTerm = "neighbour";

struct SimulatedCost {
  std::string term;
  Bytes bytes = 0;  // that the term really takes, whatever the plan says of it
  SimulatedPhase phase = SimulatedPhase::start;
  std::vector<std::int64_t> ranks;  // of each replica; empty: all
};

struct Simulation {
  std::vector<SimulatedCost> costs;
  milliseconds load_time{0};
  milliseconds step_time{0};

  std::vector<SimulatedCost> costs_of(std::int64_t rank) const;
};

// Errors: invalid, naming the key.
Result<Simulation> parse_simulation(std::string_view json_text);
// An empty path: no costs. Errors: also not_found.
Result<Simulation> read_simulation(const std::filesystem::path& path);

}  // namespace plimsoll
