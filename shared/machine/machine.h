// Machine: what the planner knows of the computer: plain data, made by device_query or a test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/units.h"

namespace plimsoll {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // that this process may use
};

// Who holds memory of a device.
struct DeviceProcess {
  std::int64_t pid = 0;
  std::optional<Bytes> bytes;  // unset: the driver does not say
  std::string user;
  std::string command;
};

struct Device {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // of a MIG slice its own
  bool is_simulated = false;
  bool is_unified = false;          // its memory is the host's
  Bytes memory_total = 0;           // as the driver says it
  std::optional<Bytes> cuda_total;  // as CUDA says it: less, by what the driver keeps
  Bytes memory_free = 0;            // now, before any process of ours
  // Measured with context and communicators up, before weights; wins over `memory_free` minus
  // what these are planned to take.
  std::optional<Bytes> free_before_weights;
  // What a share of the device is of, for servers that ask CUDA.
  Bytes total_to_share() const { return cuda_total.value_or(memory_total); }
  int compute_major = 0;  // 0: unknown
  int compute_minor = 0;
  int multiprocessors = 0;       // 0: unknown
  std::optional<Bytes> bar1;     // what peers can map of it
  std::optional<Bytes> context;  // measured size of a process's context on it
  double memory_rate = 0;        // bytes a second, as the maker says; 0: unknown
  int pcie_generation = 0;       // the fastest that device and slot have; 0: unknown
  int pcie_lanes = 0;
  int numa_node = 0;
  std::vector<DeviceProcess> processes;

  Bytes memory_used() const { return memory_total - memory_free; }
};

// How devices of a machine reach each other.
enum class DeviceLink { pcie, nvlink };
const char* device_link_name(DeviceLink link);

// The longest way between two of the devices, as `nvidia-smi topo -m` names it.
enum class PeerPath {
  unknown,
  nvlink,
  one_switch,   // PIX
  switches,     // PXB
  host_bridge,  // PHB, NODE: root ports of one socket
  sockets,      // SYS
};
const char* peer_path_name(PeerPath path);  // "nvlink", "pix", "pxb", "phb", "sys"

struct PeerLinks {
  PeerPath path = PeerPath::unknown;
  std::optional<bool> has_access;  // whether they may read and write each other; unset: not known
  // Measured; 0: not.
  double latency_us = 0;         // of a write, until the peer sees it
  double bytes_per_us = 0;       // one device to one other
  double bytes_per_us_busy = 0;  // of each device, when all talk at once
  bool operator==(const PeerLinks&) const = default;
};

// What an earlier launch on this machine measured for a term of the plan.
struct LearnedTerm {
  std::string term;  // "graphs"
  Bytes bytes = 0;   // of each rank
  std::string from;  // "generation 7"
  // Of graphs: the largest captured batch, of which alone it is true; unset: of every one.
  std::optional<std::int64_t> graph_batch = {};
};

struct Machine {
  std::string name;  // of a description; empty: this machine
  std::string cpu_name;
  std::vector<int> cpus;        // usable: affinity mask and cpuset
  double cpu_quota = 0;         // CPUs by cgroup quota (cpu.max); 0: none
  std::vector<NumaNode> nodes;  // at least one, a partition of `cpus`
  Bytes memory_total = 0;
  Bytes memory_available = 0;   // MemAvailable
  Bytes cgroup_limit = 0;       // of the ancestor that has the least left; 0: none
  Bytes cgroup_used = 0;        // by that cgroup, without reclaimable page cache
  std::vector<Device> devices;  // that ranks run on, one each; empty: ranks run on the CPU
  DeviceLink link = DeviceLink::pcie;
  PeerLinks peers;
  std::vector<LearnedTerm> learned;

  // For processes of this control group, whichever of the two has less.
  Bytes memory_left() const {
    if (cgroup_limit <= 0) return memory_available;
    return std::min(memory_available, std::max<Bytes>(0, cgroup_limit - cgroup_used));
  }
};

}  // namespace plimsoll
