#include "worker/worker_setup.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/options/device_choice.h"
#include "shared/options/option_parse.h"

namespace plimsoll {
namespace {

Result<CpuBackendOptions> backend_options(const Options& options, const RankPlan& plan) {
  CpuBackendOptions backend;
  backend.threads = static_cast<int>(plan.threads);
  backend.cpus = plan.cpus;
  if (options.cpu_path != "auto") {
    backend.path = parse_cpu_path(options.cpu_path);
    if (!backend.path) {
      return invalid(fmt::format("--cpu-path is '{}'; expected auto, scalar, avx2 or avx512-vnni",
                                 options.cpu_path));
    }
  }
  if (options.activations != "int8" && options.activations != "f32") {
    return invalid(fmt::format("--activations is '{}'; expected int8 or f32", options.activations));
  }
  backend.activations = options.activations == "f32" ? Activations::f32 : Activations::int8;
  return backend;
}

// A simulated device has what the first plan found free on it, whatever takes some of it later.
Result<std::optional<Bytes>> simulated_memory(const Options& options, const RankPlan& plan,
                                              std::int64_t tp, Bytes at_first) {
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  if (choice.kind != DeviceKind::simulated) return std::optional<Bytes>();
  if (at_first > 0) return std::optional<Bytes>(at_first);
  if (plan.device_total > 0) {
    return std::optional<Bytes>(plan.device_total - plan.held_by_others);
  }
  const auto index = static_cast<std::size_t>(plan.replica * tp + plan.rank);
  return std::optional<Bytes>(choice.sizes.empty() ? plan.budget : choice.size_of(index));
}

Error contradiction(const std::string& what) {
  return internal_error("the memory plan in Load contradicts itself: " + what);
}

Status take_ranks(const MemoryPlan& plan, const Load& load, LaunchedRank& result) {
  for (const RankPlan& rank : plan.ranks) {
    result.threads_of_all_ranks += rank.threads;
    if (rank.replica != load.replica) continue;
    if (rank.rank != std::ssize(result.shards.ranks)) return contradiction("ranks out of order");
    result.shards.ranks.push_back(rank.shard);
    if (rank.rank == load.rank) result.plan = rank;
  }
  const std::int64_t ranks = std::ssize(result.shards.ranks);
  if (load.rank >= 0 && load.rank < ranks && ranks == plan.tp) return {};
  return contradiction(fmt::format("replica {} has {} ranks, tp is {}, and this is rank {}",
                                   load.replica, ranks, plan.tp, load.rank));
}

Status take_decisions(const PlanDecisions& decided, LaunchedRank& result) {
  result.limits = {.rows_max = decided.step_tokens_max,
                   .logit_rows_max = decided.logit_rows_max,
                   .context_length = decided.context_length};
  result.running_requests_max = decided.max_running_requests;
  result.kv_blocks = decided.kv_blocks;
  result.kv_type = decided.kv_type;
  result.recorded_rows_max = decided.cuda_graph_max_bs;
  const std::int64_t rows = std::min(decided.step_tokens_max, decided.logit_rows_max);
  if (decided.max_running_requests >= 1 && decided.max_running_requests <= rows &&
      decided.context_length >= 1 && decided.kv_blocks >= 1) {
    return {};
  }
  return contradiction(fmt::format(
      "{} running requests, {} tokens and {} logit rows a step, {} tokens of context, {} KV blocks",
      decided.max_running_requests, decided.step_tokens_max, decided.logit_rows_max,
      decided.context_length, decided.kv_blocks));
}

}  // namespace

Result<LaunchedRank> read_load(const Load& load) {
  LaunchedRank result;
  result.options =
      TRY_CONTEXT("read the options in Load: ", option_set_from_json(load.options)).values;
  const MemoryPlan plan =
      TRY_CONTEXT("read the memory plan in Load: ", memory_plan_from_json(load.plan));
  TRY(take_ranks(plan, load, result));
  TRY(take_decisions(plan.decisions, result));
  if (load.rank == 0 && load.request_endpoint.empty()) {
    return internal_error("Load names no request endpoint for rank 0");
  }
  result.request_endpoint = load.request_endpoint;
  result.is_tentative = load.is_tentative;
  // One that cannot be read is measured again.
  if (const Result<BackendTable> kept = table_from_json(load.collectives)) {
    result.collectives = *kept;
  }
  result.backend = TRY(backend_options(result.options, result.plan));
  result.simulated_memory =
      TRY(simulated_memory(result.options, result.plan, plan.tp, load.simulated_memory));
  const DeviceChoice choice = TRY(parse_device_choice(result.options.devices));
  result.on_host_cuda = choice.kind == DeviceKind::cuda_host;
  return result;
}

std::optional<LogLevel> parse_log_level(std::string_view name) {
  constexpr std::array kNames = {std::pair{std::string_view("debug"), LogLevel::debug},
                                 std::pair{std::string_view("info"), LogLevel::info},
                                 std::pair{std::string_view("warning"), LogLevel::warning},
                                 std::pair{std::string_view("error"), LogLevel::error}};
  for (const auto& [known, level] : kNames) {
    if (known == name) return level;
  }
  return std::nullopt;
}

}  // namespace plimsoll
