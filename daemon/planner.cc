#include "daemon/planner.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/generation/fingerprint.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/model_input.h"

namespace plimsoll {
namespace {

constexpr std::size_t kRollupBytesMax = 64 * 1024;

// What can be planned is more than what this build can run.
Status check_devices(const Machine& machine, const Options& options) {
  if (std::ranges::any_of(machine.devices, &Device::is_simulated)) {
    return invalid(
        "devices: simulated devices can be planned for (`plimsoll plan`), not started: this build "
        "has no backend for them");
  }
  if (!machine.devices.empty()) {
    return invalid(
        "devices: GPUs need the CUDA backend, which this build does not have; `plimsoll plan` "
        "plans for them");
  }
  if (options.machine.empty()) return {};
  return invalid(
      fmt::format("machine: {} describes another machine, on which nothing can be started from "
                  "here; `plimsoll plan` plans for it",
                  options.machine));
}

}  // namespace

Bytes releasable_bytes(std::int64_t pid, const std::filesystem::path& root) {
  const Result<std::string> rollup =
      read_file(root / "proc" / std::to_string(pid) / "smaps_rollup", kRollupBytesMax);
  if (!rollup) return 0;
  Bytes sum = 0;
  for (const std::string_view line : split(*rollup, '\n')) {
    const bool counts = line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:");
    if (!counts) continue;
    const std::string_view value = trim(line.substr(line.find(':') + 1));
    std::int64_t kib = 0;
    std::from_chars(value.data(), value.data() + value.size(), kib);
    sum += kib * kKiB;
  }
  return sum;
}

Result<LaunchPlan> make_launch_plan(const OptionSet& options, std::span<const std::int64_t> own) {
  Machine machine = TRY(find_machine(options.values));
  TRY(check_devices(machine, options.values));
  for (const std::int64_t pid : own) {
    const Bytes bytes = releasable_bytes(pid);
    machine.memory_available = std::min(machine.memory_available + bytes, machine.memory_total);
    machine.cgroup_used = std::max<Bytes>(machine.cgroup_used - bytes, 0);
  }
  const std::string& model = options.values.model;
  const PlanModels models = TRY(read_plan_models(options.values, machine));
  const MemoryPlan plan = TRY(plan_memory(machine, models.model, options, models.draft_or_null()));

  LaunchPlan launch;
  launch.refusal = plan.refusal;
  const std::vector<std::string> variables = own_variables();
  launch.environment = read_fingerprint({.machine = machine,
                                         .model = model,
                                         .variables = variables,
                                         .build = "plimsoll " PLIMSOLL_VERSION});
  launch.options = options;
  launch.options_json = option_set_to_json(options);
  launch.plan_json = memory_plan_to_json(plan);
  launch.tp = plan.tp;
  launch.dp = plan.dp;
  launch.kv_blocks = plan.decisions.kv_blocks;
  launch.context_length = plan.decisions.context_length;
  launch.served_model_name = options.values.served_model_name;
  if (launch.served_model_name.empty()) {
    launch.served_model_name = std::filesystem::path(model).stem().string();
  }
  for (const RankPlan& rank : plan.ranks) {
    launch.rank_bytes.push_back(rank.total());
    launch.weight_bytes.push_back(rank.bytes(Term::weights));
  }
  launch.notes = plan.decisions.notes;
  return launch;
}

}  // namespace plimsoll
