// WeightStore: memory for the packed weights of CPU ranks, held here so that it outlives them. A
// rank that starts again maps what an earlier one has packed, and so do the same ranks of other
// replicas. Under systemd it outlives this daemon too, in the descriptor store.
//
// Held are the weights of one deployment: of another, the old ones go.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/inherited_descriptors.h"
#include "daemon/launch_plan.h"
#include "daemon/service_notify.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class WeightStore {
 public:
  WeightStore(std::vector<InheritedDescriptor> inherited, ServiceNotify& service);

  // The block of a rank, packed or for the rank to fill. -1: there is none (its device has memory
  // of its own; or none could be made, and the rank packs for itself).
  int block_of(const LaunchPlan& plan, std::int64_t replica, std::int64_t rank);
  // Sets plan.shares_weights.
  void note_shared(LaunchPlan& plan) const;
  void drop();  // all of them

 private:
  struct Block {
    std::string label;
    UniqueFd fd;
  };
  void drop(std::int64_t rank);

  ServiceNotify& service_;
  std::map<std::int64_t, Block> blocks_;  // by rank; the same for all replicas
};

}  // namespace plimsoll
