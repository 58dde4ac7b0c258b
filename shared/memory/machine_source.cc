#include "shared/memory/machine_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "shared/machine/build_features.h"
#include "shared/machine/device_query.h"
#include "shared/machine/machine_file.h"
#include "shared/machine/nvml.h"
#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

// Cards between 24 and 141 GB have 128 to 188; a rehearsal wants one in between.
constexpr int kSimulatedMultiprocessors = 160;
constexpr int kComputeMajorMin = 8;  // as kernels/cuda has it

// Of a layout that is left to us one, as long as it is not known.
std::int64_t ranks_of(const Options& options) {
  return std::max<std::int64_t>(1, options.tp) * std::max<std::int64_t>(1, options.dp);
}

void make_simulated(const DeviceChoice& choice, std::int64_t ranks, Machine& machine) {
  machine.devices.clear();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Bytes size = choice.size_of(static_cast<std::size_t>(rank));
    Device device;
    device.name = fmt::format("simulated {}", format_bytes(size));
    device.is_simulated = true;
    device.memory_total = size;
    device.memory_free = size;
    device.multiprocessors = kSimulatedMultiprocessors;
    machine.devices.push_back(std::move(device));
  }
}

Status simulate_described(const Options& options, Machine& machine) {
  if (machine.devices.empty()) {
    return invalid(
        fmt::format("devices: simulated devices need a size (simulated:96GiB) or a --machine that "
                    "has devices{}",
                    options.machine.empty() ? "" : fmt::format("; {} has none", options.machine)));
  }
  for (Device& device : machine.devices) device.is_simulated = true;
  return {};
}

// Those that are named, in that order. Errors: one that is not there, twice there.
Status choose_gpus(const std::vector<std::string>& names, Machine& machine) {
  if (names.empty()) return {};
  std::vector<Device> chosen;
  std::set<std::size_t> taken;
  for (const std::string& name : names) {
    std::size_t at = 0;
    if (name[0] >= '0' && name[0] <= '9') {
      at = std::stoul(name);  // at most three digits: device_choice.h
    } else {
      const auto found = std::ranges::find(machine.devices, name, &Device::uuid);
      at = static_cast<std::size_t>(found - machine.devices.begin());
    }
    if (at >= machine.devices.size()) {
      return invalid(fmt::format("devices: there is no GPU {}; the last of them is {}", name,
                                 machine.devices.size() - 1));
    }
    if (!taken.insert(at).second) return invalid(fmt::format("devices: GPU {} is named twice", at));
    chosen.push_back(machine.devices[at]);
  }
  machine.devices = std::move(chosen);
  return {};
}

bool is_lost(const Device& device) { return device.memory_total == 0; }

Status leave_lost(LostGpus lost, Machine& machine) {
  const auto found = std::ranges::find_if(machine.devices, is_lost);
  if (found == machine.devices.end()) return {};
  if (lost == LostGpus::refused) {
    return unavailable(
        fmt::format("devices: the driver has lost {}: it needs reset, or the machine a restart; "
                    "--devices cuda:N,... names others",
                    found->name));
  }
  std::erase_if(machine.devices, is_lost);
  return {};
}

// All that our kernels run on; none is no mistake.
Status take_gpus(LostGpus lost, Machine& machine) {
  Result<NvmlDevices> found = query_nvml(machine.memory_available, lost);
  if (!found) {
    return "devices: auto looks for GPUs (--devices cpu does not): " + std::move(found.error());
  }
  std::erase_if(found->devices, [](const Device& device) {
    return device.compute_major < kComputeMajorMin && !is_lost(device);
  });
  machine.devices = std::move(found->devices);
  machine.link = found->link;
  machine.peers = found->peers;
  return leave_lost(lost, machine);
}

Status find_gpus(const Options& options, LostGpus lost, Machine& machine) {
  if (!options.machine.empty()) {
    if (!machine.devices.empty()) return {};
    return invalid(fmt::format("devices: {} describes no GPUs", options.machine));
  }
  NvmlDevices found = TRY(query_nvml(machine.memory_available, lost));
  machine.devices = std::move(found.devices);
  machine.link = found.link;
  machine.peers = found.peers;
  if (!machine.devices.empty()) return {};
  return unavailable(
      "devices: this machine has no NVIDIA GPU that its driver knows; plan for another with "
      "--machine FILE, or use --devices cpu");
}

}  // namespace

std::optional<Machine> machine_of_ranks(const Machine& machine, const Options& options) {
  const Result<DeviceChoice> choice = parse_device_choice(options.devices);
  if (!choice || choice->kind != DeviceKind::simulated || choice->sizes.empty()) {
    return std::nullopt;
  }
  Machine made = machine;
  make_simulated(*choice, ranks_of(options), made);
  return made;
}

Result<Machine> find_machine(const Options& options, LostGpus lost) {
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  Machine machine =
      options.machine.empty() ? TRY(query_machine()) : TRY(read_machine_file(options.machine));
  switch (choice.kind) {
    case DeviceKind::automatic:  // what a description has; here GPUs, where this build has kernels
      if (options.machine.empty() && kHasGpuKernels) TRY(take_gpus(lost, machine));
      break;
    case DeviceKind::cpu:
    case DeviceKind::cuda_host:
      machine.devices.clear();
      break;
    case DeviceKind::cuda:
      TRY(find_gpus(options, lost, machine));
      TRY(choose_gpus(choice.gpus, machine));
      if (options.machine.empty()) TRY(leave_lost(lost, machine));
      break;
    case DeviceKind::simulated:
      if (choice.sizes.empty()) {
        TRY(simulate_described(options, machine));
      } else {
        make_simulated(choice, ranks_of(options), machine);
      }
      break;
  }
  if (machine.devices.empty() && machine.memory_total == 0) {
    return invalid(
        fmt::format("devices: {} does not say how much memory its host has", options.machine));
  }
  return machine;
}

}  // namespace plimsoll
