#include "daemon/quarantine.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

// How many replicas of `tp` ranks that many devices are enough for; groups of experts stay whole.
std::int64_t replicas_on(std::int64_t devices, const Options& options) {
  std::int64_t dp = std::min(options.dp, devices / options.tp);
  while (dp > 0 && options.ep > 0 && options.tp * dp % options.ep != 0) --dp;
  return dp;
}

}  // namespace

const QuarantinedDevice* find_quarantined(const Quarantine& quarantine, const std::string& uuid) {
  const auto found = std::ranges::find(quarantine, uuid, &QuarantinedDevice::uuid);
  return uuid.empty() || found == quarantine.end() ? nullptr : &*found;
}

std::string device_words(const std::string& uuid, const std::string& name) {
  return name.empty() ? uuid : fmt::format("{} ({})", uuid, name);
}

void name_simulated(Machine& machine) {
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    Device& device = machine.devices[i];
    if (device.is_simulated && device.uuid.empty())
      device.uuid = fmt::format("{}{}", kSimulatedName, i);
  }
}

Result<std::int64_t> leave_out(const Quarantine& quarantine, const Options& options,
                               Machine& machine) {
  const DeviceChoice choice = TRY(parse_device_choice(options.devices));
  const bool is_cpu = choice.kind == DeviceKind::cpu || choice.kind == DeviceKind::cuda_host;
  if (is_cpu || quarantine.empty()) return options.dp;
  // Those that their driver has lost are not there at all. Without any, this is no CPU yet.
  std::erase_if(machine.devices, [&](const Device& device) {
    return find_quarantined(quarantine, device.uuid) != nullptr;
  });
  const auto left = std::ssize(machine.devices);
  const bool is_auto = options.tp == 0 || options.dp == 0;  // the plan takes what is left
  if (is_auto && left >= std::max<std::int64_t>(1, options.tp)) return options.dp;
  const std::int64_t dp = is_auto ? 0 : replicas_on(left, options);
  if (dp > 0) return dp;
  std::string reasons;
  for (const QuarantinedDevice& one : quarantine) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ",
                           device_words(one.uuid, one.name), one.reason);
  }
  const std::int64_t smaller = std::min<std::int64_t>(options.tp - 1, left);
  return does_not_fit(fmt::format(
      "devices: one replica needs {}, and {} {} left; in quarantine: {}; have them reset and "
      "`plimsoll restart`{}",
      std::max<std::int64_t>(1, options.tp), left, left == 1 ? "is" : "are", reasons,
      smaller > 0 ? fmt::format(", or serve with tp {}", smaller) : ""));
}

std::vector<std::string> devices_of(const MemoryPlan& plan, std::int64_t index, std::int64_t tp) {
  std::vector<std::string> uuids;
  for (std::int64_t i = index * tp; i < (index + 1) * tp && i < std::ssize(plan.ranks); ++i) {
    const std::string& uuid = plan.ranks[static_cast<std::size_t>(i)].device_uuid;
    if (!uuid.empty()) uuids.push_back(uuid);
  }
  return uuids;
}

bool move_to_spares(const Spares& spares, std::int64_t index, std::int64_t tp, MemoryPlan& plan) {
  std::vector<std::size_t> chosen;  // of spares.devices
  for (std::int64_t i = index * tp; i < (index + 1) * tp; ++i) {
    if (i >= std::ssize(plan.ranks)) return false;
    const RankPlan& rank = plan.ranks[static_cast<std::size_t>(i)];
    std::size_t at = 0;
    for (; at < spares.devices.size(); ++at) {
      const Device& device = spares.devices[at];
      const bool is_taken = std::ranges::find(chosen, at) != chosen.end() ||
                            std::ranges::find(spares.in_use, device.uuid) != spares.in_use.end() ||
                            find_quarantined(spares.quarantine, device.uuid) != nullptr;
      // The plan is of kernels for that kind of device, and of its size.
      const bool is_same = rank.device_name.empty() || device.name == rank.device_name;
      const bool has_room =
          is_same && device.memory_total >= rank.device_total && device.memory_free >= rank.total();
      if (!device.uuid.empty() && !is_taken && has_room) break;
    }
    if (at == spares.devices.size()) return false;
    chosen.push_back(at);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    RankPlan& rank = plan.ranks[static_cast<std::size_t>(index * tp) + i];
    const Device& device = spares.devices[chosen[i]];
    rank.device = static_cast<std::int64_t>(chosen[i]);
    rank.device_name = device.name;
    rank.device_uuid = device.uuid;
  }
  return true;
}

}  // namespace plimsoll
