// CollectiveForecast: how many tokens a second ranks on GPUs would make with each backend of the
// collective, before anything runs. Pure.
//
// A step takes what it reads of weights and KV, what launching takes, and two all-reduces a layer,
// which nothing hides: each waits for what is before it. Figures are from public measurements of
// such machines (link_cost.cc has each one's source) or measured ones of a description; what a
// machine really does, the test at start says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/units.h"
#include "shared/collective/collective_choice.h"
#include "shared/collective/reduce_time.h"
#include "shared/machine/machine.h"
#include "shared/memory/memory_plan.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

constexpr std::int64_t kForecastRequests = 32;
constexpr Tokens kForecastContext = 1024;  // of each request

// All that one decode step takes but its all-reduces, in µs.
struct StepForecast {
  std::int64_t requests = 1;
  Bytes weights = 0;  // that a rank reads
  Bytes kv = 0;
  double read_us = 0;
  double launch_us = 0;
  std::string formula = {};
  double us() const { return read_us + launch_us; }
};

struct BackendForecast {
  std::string name = {};  // "ipc"; "nccl, P2P" and "pull" are no --collective
  std::string about = {};
  bool is_there = true;
  std::string why_not = {};
  Bytes row_bytes = 0;                      // that it adds up of one token
  ReduceTime one = {};                      // of a step of one request
  ReduceTime many = {};                     // of kForecastRequests
  ReduceTime prefill = {};                  // of the longest step
  std::optional<double> tokens_per_s = {};  // unset: the devices' memory rate is not known
  std::optional<double> tokens_per_s_many = {};
  std::string source = {};
};

struct CollectiveForecast {
  std::string choice = {};  // collective_choice_text()
  std::int64_t ranks = 0;
  std::int64_t reductions = 0;  // of a step
  Bytes value_bytes = 0;        // of each value that ranks add up: 8 with our kernels, f64
  Tokens prefill_tokens = 0;
  std::string link = {};  // "pcie, phb: default of PCIe 5"; "nvlink: ..."
  std::optional<StepForecast> step = {};
  std::optional<StepForecast> step_many = {};
  std::vector<BackendForecast> backends = {};  // fastest first; then those that are not there
};

// nullopt: ranks on CPUs, or one rank, which exchanges nothing.
std::optional<CollectiveForecast> forecast_collectives(const Machine& machine,
                                                       const ModelSpec& model,
                                                       const MemoryPlan& plan,
                                                       const OptionSet& options);

// requests / (step + reductions x all-reduce).
double tokens_per_second(std::int64_t requests, double step_us, std::int64_t reductions,
                         double reduce_us);

// forecast_report.cc
// A short table, for people.
std::string forecast_report(const CollectiveForecast& forecast);
// Each formula with its numbers and where they are from.
std::string explain_forecast(const CollectiveForecast& forecast);
Json forecast_to_json(const CollectiveForecast& forecast);

}  // namespace plimsoll
