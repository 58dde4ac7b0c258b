// The part of the deployment that goes on without devices that have failed: a replica moves to
// others where there are any, else it is left out while the rest serves; the last one is planned
// anew.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/deployment.h"
#include "shared/base/check.h"

namespace plimsoll {

void Deployment::device_faulted(const DeviceFault& fault, TimePoint now, Actions& out) {
  for (Cohort& cohort : cohorts_) cohort.device_faulted(fault, now, out);
  settle(now, out);
}

// On a device that is in quarantine nothing is started.
void Deployment::start_cohort(Cohort& cohort, TimePoint now, Actions& out) {
  const LaunchPlan& plan = cohort.plan();
  for (const std::string& uuid : devices_of(plan.memory, cohort.index(), plan.tp)) {
    const QuarantinedDevice* lost = find_quarantined(quarantine_, uuid);
    if (lost == nullptr) continue;
    return cohort.refuse_device({uuid, lost->reason});
  }
  cohort.start(++incarnations_, now, out);
}

// A change is over first, one way or the other.
void Deployment::replace_lost(Actions& out) {
  if (change_ && change_->state != ChangeState::reverted) return;
  if (awaits_devices_ || awaits_replicas_) return;
  if (std::ranges::none_of(cohorts_, &Cohort::has_lost_device)) return;
  const bool are_others = std::ranges::any_of(
      cohorts_, [](const Cohort& c) { return c.state() != CohortState::failed; });
  if (are_others) {
    awaits_devices_ = true;
    devices_question_ = ++questions_;
    out.emplace_back(FindDevices{plan().options, devices_question_});
  } else {
    awaits_replicas_ = true;
    plan_question_ = ++questions_;
    out.emplace_back(MakePlan{plan().options, quarantine_, plan_question_});
  }
}

bool Deployment::move_lost(Cohort& cohort, const std::vector<Device>& devices) {
  LaunchPlan& plan = plans_.front().plan;
  if (&cohort.plan() != &plan) return false;
  std::vector<std::string> in_use;
  for (const Cohort& other : cohorts_) {
    if (other.has_lost_device()) continue;
    for (std::string& uuid : devices_of(other.plan().memory, other.index(), other.plan().tp)) {
      in_use.push_back(std::move(uuid));
    }
  }
  const Spares spares{.devices = devices, .in_use = in_use, .quarantine = quarantine_};
  if (!move_to_spares(spares, cohort.index(), plan.tp, plan.memory)) return false;
  // Other devices have other links: what was measured between the former ones is not of these.
  plan.collectives = Json();
  cohort.forget_collectives();
  plan.plan_json = memory_plan_to_json(plan.memory);
  return true;
}

void Deployment::devices_found(const DevicesFound& found, TimePoint now, Actions& out) {
  if (found.question != devices_question_ || !std::exchange(awaits_devices_, false)) return;
  if (stop_phase_ != StopPhase::none) return;
  std::vector<std::int64_t> lost;
  for (Cohort& cohort : cohorts_) {
    if (!cohort.has_lost_device()) continue;
    if (!found.devices || !move_lost(cohort, *found.devices)) {
      lost.push_back(cohort.replica());
      continue;
    }
    const std::vector<std::string> to = devices_of(plan().memory, cohort.index(), plan().tp);
    out.emplace_back(
        Log{LogLevel::warning, fmt::format("replica {}: starts again on {}{}", cohort.replica(),
                                           to.front(), to.size() > 1 ? " and others" : "")});
    start_cohort(cohort, now, out);
  }
  // Those that were to serve on may have failed meanwhile: then it is planned anew.
  const bool are_others = std::ranges::any_of(
      cohorts_, [](const Cohort& c) { return c.state() != CohortState::failed; });
  if (!are_others) return settle(now, out);
  const std::string reason =
      found.devices ? "no other device is free for it" : found.devices.error().message;
  for (const std::int64_t replica : lost) {
    std::erase_if(cohorts_, [&](const Cohort& c) { return c.replica() == replica; });
    out.emplace_back(
        Log{LogLevel::error,
            fmt::format("replica {}: left out, since {}: {} of {} replicas go on (`plimsoll "
                        "restart` once the device has been reset)",
                        replica, reason, cohorts_.size(),
                        std::max(plan().options.values.dp, plan().dp))});
  }
  settle(now, out);
}

// The router stays, with all requests: they go on with what is planned now.
void Deployment::replace_all(const Result<LaunchPlan>& plan, TimePoint now, Actions& out) {
  awaits_replicas_ = false;
  if (stop_phase_ != StopPhase::none) return;
  if (!plan) return fail(plan.error(), now, out);
  if (plan->refusal) return fail(*plan->refusal, now, out);
  CHECK(std::ranges::none_of(cohorts_, &Cohort::has_processes));
  PlanInUse& use = plans_.front();
  use = PlanInUse{*plan};
  cohorts_.clear();
  out.emplace_back(
      Log{LogLevel::warning,
          fmt::format("planned anew without the devices in quarantine: {} of {} "
                      "replicas start again",
                      use.plan.dp, std::max(use.plan.options.values.dp, use.plan.dp))});
  use_router_plan(use, out);
  for (std::int64_t replica = 0; replica < use.plan.dp; ++replica) {
    add_cohort({.replica = replica, .index = replica}, use, setup_.starts_max);
    start_cohort(cohorts_.back(), now, out);
  }
  settle(now, out);
}

// ---- processes that do not end ----

std::optional<Deployment::Stuck> Deployment::process_seen(const ProcessSeen& seen, TimePoint now,
                                                          Actions& out) {
  Cohort* cohort = cohort_of(seen.child);
  const std::int64_t rank = seen.child.rank;
  if (cohort == nullptr) return std::nullopt;
  const StuckVerdict verdict = cohort->process_seen(rank, seen.state, now, out);
  if (verdict == StuckVerdict::wait) return std::nullopt;
  Stuck stuck;
  if (verdict == StuckVerdict::blame_device) {
    const std::int64_t pid = cohort->workers()[static_cast<std::size_t>(rank)].pid;
    stuck.fault = DeviceFault{
        cohort->device_of(rank),
        fmt::format("process {} is stuck in its driver{}", pid,
                    seen.state.wait_channel.empty() ? "" : " in " + seen.state.wait_channel)};
  }
  return stuck;
}

void Deployment::abandon(const ChildId& child, TimePoint now, Actions& out) {
  if (Cohort* cohort = cohort_of(child)) cohort->abandon(child.rank, now, out);
  settle(now, out);
}

}  // namespace plimsoll
