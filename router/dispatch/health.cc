#include "router/dispatch/health.h"

#include <utility>

#include <fmt/core.h>

namespace plimsoll {

Readiness readiness(const Dispatcher& dispatcher, bool draining) {
  const std::int64_t ready_count = dispatcher.table().ready_count();
  const auto count = static_cast<std::int64_t>(dispatcher.table().replicas().size());
  Readiness out;
  // A replica may be ready before the daemon's test request has proved the deployment.
  const bool serving = dispatcher.deployment_state() == "serving";
  out.ready = serving && ready_count > 0 && !draining;
  Json reason;
  if (draining) {
    reason = "draining: running requests finish, new ones are refused";
  } else if (!out.ready && !dispatcher.reason().empty()) {
    reason = dispatcher.reason();
  } else if (ready_count == 0) {
    reason = "no replica is ready";
  } else if (!serving) {
    reason = "the deployment is " + dispatcher.deployment_state();
  }
  out.body = Json::object({{"status", out.ready ? "ok" : "unavailable"},
                           {"deployment", dispatcher.deployment_state()},
                           {"reason", std::move(reason)},
                           {"replicas_ready", ready_count},
                           {"replicas", count}});
  return out;
}

void ProbeRun::start(std::int64_t sequence, std::map<std::uint64_t, std::int64_t> requests,
                     TimePoint now) {
  sequence_ = sequence;
  replicas_ = static_cast<std::int64_t>(requests.size());
  deadline_ = now + kProbeTimeMax;
  pending_ = std::move(requests);
}

std::optional<ProbeResult> ProbeRun::finished(std::uint64_t id) {
  if (pending_.erase(id) == 0 || !pending_.empty()) return std::nullopt;
  return ProbeResult{sequence_, true, fmt::format("{} replica(s) answered", replicas_)};
}

std::optional<ProbeResult> ProbeRun::failed(std::uint64_t id, const Error& why) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return std::nullopt;
  return ProbeResult{sequence_, false, fmt::format("replica {}: {}", found->second, why.message),
                     code_name(why.code)};
}

std::optional<ProbeResult> ProbeRun::tick(TimePoint now) {
  if (pending_.empty() || now < deadline_) return std::nullopt;
  return failed(pending_.begin()->first,
                timed_out(fmt::format("no token within {:.0f} s", to_seconds(kProbeTimeMax))));
}

}  // namespace plimsoll
