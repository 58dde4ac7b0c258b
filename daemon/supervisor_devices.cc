// The part of the supervisor that keeps devices that have failed in quarantine.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/supervisor.h"

namespace plimsoll {
namespace {

constexpr std::size_t kQuarantineMax = 1024;

// As a plan calls it; empty: it is in none.
std::string name_of(const LaunchPlan& plan, const std::string& uuid) {
  const auto rank = std::ranges::find(plan.memory.ranks, uuid, &RankPlan::device_uuid);
  return rank == plan.memory.ranks.end() ? "" : rank->device_name;
}

std::string devices(std::size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "device" : "devices");
}

}  // namespace

void Supervisor::quarantine(const DeviceFault& fault, TimePoint now) {
  const bool is_known = find_quarantined(quarantine_, fault.uuid) != nullptr;
  if (is_known || fault.uuid.empty() || quarantine_.size() >= kQuarantineMax) return;
  const std::string name = deployment_ ? name_of(deployment_->plan(), fault.uuid) : "";
  quarantine_.push_back(
      {.uuid = fault.uuid, .name = name, .reason = fault.what + "; it needs reset", .since = now});
  log(LogLevel::error,
      fmt::format("device {}: {}: nothing is started on it any more until `plimsoll restart`",
                  device_words(fault.uuid, name), quarantine_.back().reason));
  out_.emplace_back(SaveState{});
  if (deployment_) deployment_->device_faulted(fault, now, out_);
}

// A restart is how people say that devices have been reset: it is planned with all of them. What
// fails from then on was not reset.
bool Supervisor::was_reset(const QuarantinedDevice& device) const {
  return operation_.kind == OperationKind::restart && !operation_.failure &&
         !operation_.has_released && device.since <= operation_.since;
}

void Supervisor::make_plan(const OptionSet& options) {
  operation_.question = ++questions_;
  MakePlan wanted{options, quarantine_, operation_.question};
  std::erase_if(wanted.without, [this](const QuarantinedDevice& one) { return was_reset(one); });
  out_.emplace_back(std::move(wanted));
}

void Supervisor::release_quarantine() {
  const bool is_said = operation_.kind == OperationKind::restart && !operation_.failure;
  if (!is_said || operation_.has_released) return;
  for (const QuarantinedDevice& one : quarantine_) {
    if (was_reset(one)) operation_.released.push_back(one);
  }
  std::erase_if(quarantine_, [this](const QuarantinedDevice& one) { return was_reset(one); });
  operation_.has_released = true;
  const std::size_t count = operation_.released.size();
  if (count == 0) return;
  log(LogLevel::info,
      fmt::format("{} in quarantine {} used again", devices(count), count == 1 ? "is" : "are"));
}

void Supervisor::restore_quarantine() {
  std::size_t count = 0;
  for (QuarantinedDevice& device : std::exchange(operation_.released, {})) {
    if (find_quarantined(quarantine_, device.uuid) != nullptr) continue;
    quarantine_.push_back(std::move(device));
    ++count;
  }
  if (count == 0) return;
  log(LogLevel::warning,
      fmt::format("the restart has failed: {} in quarantine again", devices(count)));
  out_.emplace_back(SaveState{});
}

bool Supervisor::is_planned_on_lost(const LaunchPlan& plan) const {
  return std::ranges::any_of(plan.memory.ranks, [this](const RankPlan& rank) {
    const QuarantinedDevice* found = find_quarantined(quarantine_, rank.device_uuid);
    return found != nullptr && !was_reset(*found);
  });
}

void Supervisor::on(const DeviceFaulted& event, TimePoint now) { quarantine(event.fault, now); }

void Supervisor::on(const DevicesFound& event, TimePoint now) {
  if (deployment_) deployment_->devices_found(event, now, out_);
}

void Supervisor::on(const ProcessSeen& event, TimePoint now) {
  if (!deployment_) return;
  const std::optional<Deployment::Stuck> stuck = deployment_->process_seen(event, now, out_);
  if (!stuck) return;
  if (stuck->fault) quarantine(*stuck->fault, now);
  deployment_->abandon(event.child, now, out_);
}

}  // namespace plimsoll
