// LinkCost: what it costs the GPUs of a replica to reach each other, and where each figure is from.
//
// Times are µs, rates bytes/µs (a GB/s is 1,000), as formulas in reduce_time.h take them.
#pragma once

#include <cstdint>
#include <string>

#include "shared/machine/machine.h"

namespace plimsoll {

struct LinkCost {
  double alpha = 0;         // of one phase: written, flagged, seen by the peer
  double single = 0;        // bytes/µs from one device to one other
  double busy = 0;          // bytes/µs of each device, when all talk at once
  std::string source = {};  // "default of PCIe 5", "the description"
};

// NCCL's ring of a protocol: base + 2 (n - 1) hop + copies x 2 (n - 1) / n x bytes / rate.
struct RingProtocol {
  double base = 0;
  double hop = 0;
  double copies = 1;  // what a byte of data takes on the wire
};
struct RingCost {
  RingProtocol low_latency = {};
  RingProtocol simple = {};
  double rate = 0;       // bytes/µs
  bool by_host = false;  // through host memory: `staged_*` in place of the ring
  double staged_base = 0;
  double staged_rate = 0;
  std::string source = {};
};

// Path of the machine's devices, where it says none: NVLink, or by the nodes that they are on.
PeerPath peer_path(const Machine& machine);
// What nobody said to be forbidden is taken for allowed.
bool has_peer_access(const Machine& machine);

LinkCost link_cost(const Machine& machine);
// As NCCL goes when nobody tells it how: past a host bridge it does not use peer access.
RingCost nccl_cost(const Machine& machine);
// With NCCL_P2P_LEVEL=SYS.
RingCost nccl_peer_cost(const Machine& machine);

}  // namespace plimsoll
