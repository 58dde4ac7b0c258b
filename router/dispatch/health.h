// Health: whether new requests would be served now, and why not; and the probe that proves it with
// a real token of every replica.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "router/dispatch/dispatcher.h"
#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

struct Readiness {
  bool ready = false;
  Json body;  // {"status", "deployment", "reason", "replicas_ready", "replicas"}
};
Readiness readiness(const Dispatcher& dispatcher, bool draining);

constexpr Duration kProbeTimeMax = seconds(30);

// One probe at a time; a new one takes the place of an unfinished one.
class ProbeRun {
 public:
  // Requests of one token that were sent, by id: the replica of each.
  void start(std::int64_t sequence, std::map<std::uint64_t, std::int64_t> requests, TimePoint now);
  bool owns(std::uint64_t id) const { return pending_.contains(id); }
  // Each gives the result once it is decided.
  std::optional<ProbeResult> finished(std::uint64_t id);
  std::optional<ProbeResult> failed(std::uint64_t id, const Error& why);
  std::optional<ProbeResult> tick(TimePoint now);
  const std::map<std::uint64_t, std::int64_t>& pending() const { return pending_; }
  void clear() { pending_.clear(); }

 private:
  std::int64_t sequence_ = 0;
  std::int64_t replicas_ = 0;
  TimePoint deadline_;
  std::map<std::uint64_t, std::int64_t> pending_;
};

}  // namespace plimsoll
