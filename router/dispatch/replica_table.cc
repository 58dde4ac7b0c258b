#include "router/dispatch/replica_table.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

// What was known of the old incarnation says nothing about the new one.
Replica fresh(const ReplicaInfo& info) {
  Replica replica;
  replica.incarnation = info.incarnation;
  replica.endpoint = info.endpoint;
  replica.state = info.state;
  return replica;
}

}  // namespace

ReplicaChanges ReplicaTable::update(const std::vector<ReplicaInfo>& infos) {
  ReplicaChanges changes;
  std::map<std::int64_t, Replica> next;
  for (const ReplicaInfo& info : infos) {
    const auto found = replicas_.find(info.replica);
    Replica replica = fresh(info);
    const bool same = found != replicas_.end() && found->second.incarnation == info.incarnation &&
                      found->second.endpoint == info.endpoint && found->second.alive();
    if (same && replica.alive()) {
      replica = std::move(found->second);
      replica.state = info.state;
      replicas_.erase(found);
    } else if (replica.takes_probes()) {
      changes.connect.push_back(info.replica);
    } else if (replica.alive()) {
      replica.state = "restarting";  // draining, and we never had it: nothing of ours is there
    }
    next.insert_or_assign(info.replica, std::move(replica));
  }
  // What is left of the old table is gone, or another incarnation stands in its place.
  for (auto& [id, old] : replicas_) {
    if (!old.alive()) continue;
    changes.disconnect.push_back(id);
    const auto now = next.find(id);
    const std::string state = now == next.end() ? "removed" : now->second.state;
    changes.lost.push_back({id, old.incarnation, state, std::move(old.requests)});
  }
  replicas_ = std::move(next);
  return changes;
}

std::int64_t ReplicaTable::ready_count() const {
  return std::ranges::count_if(replicas_, [](const auto& entry) { return entry.second.ready(); });
}

bool ReplicaTable::any_coming() const {
  return std::ranges::any_of(replicas_, [](const auto& entry) {
    const std::string& state = entry.second.state;
    return state == "loading" || state == "warming" || state == "proving" || state == "restarting";
  });
}

}  // namespace plimsoll
