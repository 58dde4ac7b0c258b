// ReplicaTable: the replicas as the daemon last told, and what we have out at each.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "shared/control/messages.h"

namespace plimsoll {

struct Replica {
  std::int64_t incarnation = 0;
  std::string endpoint;
  std::string state;
  std::set<std::uint64_t> requests;   // sent to it and not ended
  std::int64_t unstarted = 0;         // of those, without any token yet
  std::int64_t unstarted_tokens = 0;  // their prompts' lengths
  // As its leader last told.
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;
  std::int64_t kv_blocks = 0;

  bool ready() const { return state == "ready"; }
  // One that proves itself takes nothing but probes yet.
  bool takes_probes() const { return ready() || state == "proving"; }
  // A draining one finishes what it has.
  bool alive() const { return takes_probes() || state == "draining"; }
};

// What a new table changes.
struct ReplicaChanges {
  struct Lost {
    std::int64_t replica = 0;
    std::int64_t incarnation = 0;
    std::string state;
    std::set<std::uint64_t> requests;
  };
  std::vector<Lost> lost;
  std::vector<std::int64_t> connect;     // an endpoint that is new
  std::vector<std::int64_t> disconnect;  // connections that lead nowhere now
};

class ReplicaTable {
 public:
  ReplicaChanges update(const std::vector<ReplicaInfo>& infos);

  std::map<std::int64_t, Replica>& replicas() { return replicas_; }
  const std::map<std::int64_t, Replica>& replicas() const { return replicas_; }
  std::int64_t ready_count() const;
  // Whether one that is not ready is on its way to become so.
  bool any_coming() const;

 private:
  std::map<std::int64_t, Replica> replicas_;
};

}  // namespace plimsoll
