#include "daemon/planner.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <fmt/format.h>

#include "daemon/model_identity.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/collective/collective_choice.h"
#include "shared/generation/fingerprint.h"
#include "shared/generation/layout_speeds.h"
#include "shared/generation/learned_terms.h"
#include "shared/machine/build_features.h"
#include "shared/memory/held_memory.h"
#include "shared/memory/layout_choice.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/model_input.h"
#include "shared/memory/plan_problem.h"
#include "shared/memory/simulation.h"
#include "shared/model/model_source.h"
#include "shared/options/device_choice.h"
#include "shared/options/folders.h"

namespace plimsoll {
namespace {

constexpr std::size_t kRollupBytesMax = 64 * 1024;

// Without devices in quarantine, and for how many replicas it is enough then.
struct UsableMachine {
  Machine machine;
  std::int64_t dp = 1;
};
Result<UsableMachine> usable_machine(const Options& options, const Quarantine& without) {
  // One that the driver has lost is as a rule one of those.
  const LostGpus lost = without.empty() ? LostGpus::refused : LostGpus::left_out;
  UsableMachine usable{.machine = TRY(find_machine(options, lost)), .dp = options.dp};
  name_simulated(usable.machine);
  usable.dp = TRY(leave_out(without, options, usable.machine));
  return usable;
}

// What can be planned is more than what this build can run.
Status check_devices(const Machine& machine, const Options& options) {
  const bool is_simulated =
      !machine.devices.empty() && std::ranges::all_of(machine.devices, &Device::is_simulated);
  if (is_simulated) return {};
  if (options.machine.empty()) return {};
  return invalid(fmt::format(
      "machine: {} describes another machine, on which nothing can be started from "
      "here; `plimsoll plan` plans for it, and --devices simulated rehearses the launch",
      options.machine));
}

// Of ranks on this machine's GPUs.
Status check_gpus(const Machine& machine, const ModelSpec& model, const Options& options) {
  if (machine.devices.empty() || machine.devices.front().is_simulated) return {};
  if (!kHasGpuKernels) {
    return invalid(
        "devices: this build has no kernels for GPUs; build it where nvcc is found (docs/gpu.md), "
        "or use --devices cpu. `plimsoll plan` plans for GPUs, and --devices simulated rehearses "
        "the launch");
  }
  if (!model.not_loaded.empty()) {
    return invalid(fmt::format("model {}: {}", options.model, model.not_loaded));
  }
  if (model.weights.all().empty()) {
    return invalid(
        "model: workers load GGUF files; this model can be planned for GPUs, and --devices "
        "simulated rehearses the launch");
  }
  if (!options.draft_model.empty()) {
    return invalid("draft-model: workers do not use a draft model; leave it empty");
  }
  if (options.ep > 1) return invalid("ep: workers do not divide experts; leave it 1");
  return check_cuda_options(options);
}

// Each worker reads it for itself; a mistake is better said once.
Status check_simulation(const Options& options) {
  if (options.simulation.empty()) return {};
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  if (choice.kind != DeviceKind::simulated) {
    return invalid(
        "simulation: only simulated devices have hidden costs; add --devices simulated:SIZE");
  }
  TRY(read_simulation(options.simulation));
  return {};
}

// Contexts of our own as they are; what else is not free is others'.
void take_found(std::span<const DeviceFound> found, Machine& machine) {
  for (const DeviceFound& one : found) {
    if (one.device < 0 || one.device >= std::ssize(machine.devices)) continue;
    Device& device = machine.devices[static_cast<std::size_t>(one.device)];
    device.context = one.context;
    device.memory_free = std::min(device.memory_total, one.free + one.context);
  }
}

Bytes available_bytes(const Machine& machine) {
  if (machine.devices.empty()) return machine.memory_left();
  Bytes sum = 0;
  for (const Device& device : machine.devices) sum += device.memory_free;
  return sum;
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

Result<LaunchPlan> make_launch_plan(const OptionSet& given, std::span<const std::int64_t> own,
                                    const Quarantine& without, std::span<const DeviceFound> found) {
  auto [machine, dp] = TRY(usable_machine(given.values, without));
  OptionSet wished = given;  // on what devices there are; what was wished for stays
  wished.values.dp = dp;
  TRY(check_devices(machine, given.values));
  TRY(check_simulation(given.values));
  for (const std::int64_t pid : own) {
    const Bytes bytes = releasable_bytes(pid);
    machine.memory_available = std::min(machine.memory_available + bytes, machine.memory_total);
    machine.cgroup_used = std::max<Bytes>(machine.cgroup_used - bytes, 0);
  }
  const std::string& model = given.values.model;
  ModelIdentity identity = model_identity(model);  // before it is read
  const PlanModels models = TRY(read_plan_models(given.values, machine));
  const std::vector<std::string> variables = own_variables();
  LaunchPlan launch;
  launch.environment = read_fingerprint({.machine = machine,
                                         .model = model,
                                         .variables = variables,
                                         .build = "plimsoll " PLIMSOLL_VERSION});
  const std::filesystem::path state = state_folder(given.values);
  for (const Device& device : machine.devices) {
    if (device.is_simulated) launch.simulated_memory.push_back(device.memory_free);
  }
  take_found(found, machine);  // before a layout is chosen: contexts of ours are up, and not free
  const LayoutChoice layout = TRY(choose_layout(
      machine, models.model, wished, models.draft_or_null(),
      is_layout_auto(given.values) ? read_layout_speeds(state, {launch.environment, given})
                                   : std::vector<LayoutSpeed>()));
  const OptionSet options = with_layout(wished, layout);
  TRY(check_gpus(machine, models.model, options.values));
  TRY(check_collective(machine, options, options.values.tp));
  TRY(check_collective_code(machine, options, options.values.tp));
  add_learned(read_learned_terms(state, {launch.environment, options}), machine);
  if (!found.empty()) {  // what was learned of contexts gives way to what they are
    std::erase_if(machine.learned,
                  [](const LearnedTerm& term) { return term.term == term_name(Term::context); });
  }
  MemoryPlan plan = TRY(plan_memory(machine, models.model, options, models.draft_or_null()));
  if (!layout.why.empty()) plan.decisions.notes.insert(plan.decisions.notes.begin(), layout.why);
  launch.refusal = plan.refusal;
  launch.options = given;
  launch.options_json = option_set_to_json(given);
  launch.plan_json = memory_plan_to_json(plan);
  launch.memory = plan;
  // Of devices it is not one sum; there one replica at a time is safe only in its own place.
  if (machine.devices.empty()) launch.memory_available = available_bytes(machine);
  launch.tp = plan.tp;
  launch.dp = plan.dp;
  launch.kv_blocks = plan.decisions.kv_blocks;
  launch.context_length = plan.decisions.context_length;
  launch.model_identity = std::move(identity);
  launch.served_model_name = given.values.served_model_name;
  if (launch.served_model_name.empty()) {
    launch.served_model_name =
        is_description(model) ? models.model.name : std::filesystem::path(model).stem().string();
  }
  for (const RankPlan& rank : plan.ranks) {
    // Alone; how much of it is shared with whom changes with every move of replicas.
    launch.rank_bytes.push_back(rank.total() - rank.bytes(Term::weights) + rank.packed_weights());
    launch.weight_bytes.push_back(rank.packed_weights());
  }
  launch.notes = plan.decisions.notes;
  if (options.values.dp < given.values.dp) {
    launch.notes.push_back(fmt::format("{} of {} replicas: {} of the devices are in quarantine",
                                       options.values.dp, given.values.dp, without.size()));
  }
  if (plan.tp > 1) {
    launch.collectives = read_learned_collectives(state, {launch.environment, options});
  }
  return launch;
}

Result<std::vector<Device>> find_devices(const OptionSet& options) {
  Machine machine = TRY(find_machine(options.values, LostGpus::left_out));
  name_simulated(machine);
  return std::move(machine.devices);
}

Planned plan_launch(const OptionSet& options, std::span<const std::int64_t> own,
                    const Quarantine& without, std::span<const DeviceFound> found) {
  Planned planned{.plan = make_launch_plan(options, own, without, found), .options = options};
  if (!planned.plan) return planned;
  Result<UsableMachine> usable = usable_machine(options.values, without);
  if (!usable) return planned;
  Machine* machine = &usable->machine;
  // Nobody else is on simulated devices.
  if (std::ranges::any_of(machine->devices, &Device::is_simulated)) return planned;
  std::vector<std::string> holders = large_holders(*machine, own);
  if (!planned.plan->refusal) {
    for (std::string& line : holders) planned.plan->notes.push_back(std::move(line));
    return planned;
  }
  const OptionSet chosen = with_layout(options, {.tp = planned.plan->tp, .dp = planned.plan->dp});
  add_learned(read_learned_terms(state_folder(options.values), {planned.plan->environment, chosen}),
              *machine);
  if (!fits_alone(*machine, chosen)) return planned;  // nobody else is to blame
  holders = all_holders(*machine, own);
  planned.plan->refusal->message += holders_text(holders);
  planned.held = HeldMemory{available_bytes(*machine), std::move(holders)};
  return planned;
}

}  // namespace plimsoll
