#include "shared/collective/link_cost.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr double kGigaPerSecond = 1000;  // bytes/µs

struct LinkDefault {
  int generation;  // of PCIe
  double alpha;
  double single;
  double busy;
};
// One phase and all-at-once rates as published for such machines; one device to one other at
// nearly the link's rate. PCIe 5: 8 cards, 5.3 µs at 12 KiB, 34.6 µs at 384 KiB (SGLang 0.5.23).
// PCIe 3: 4 x V100 on a switch, 4.0 µs at 4 KiB, 11.8 µs at 32 KiB (sglang-V100#2).
constexpr LinkDefault kPcie[] = {{5, 3.5, 55 * kGigaPerSecond, 25 * kGigaPerSecond},
                                 {4, 3.5, 26 * kGigaPerSecond, 12 * kGigaPerSecond},
                                 {3, 3.0, 10 * kGigaPerSecond, 10 * kGigaPerSecond}};
// H100: 4 µs, 350 GB/s.
constexpr LinkDefault kNvlink = {0, 4.0, 350 * kGigaPerSecond, 350 * kGigaPerSecond};
constexpr int kGenerationUnknown = 4;

// NCCL 2.28.9's own tuning model (its source): bases and what a hop costs.
constexpr RingProtocol kLowLatencyPcie = {6.6, 1.0, 2};
constexpr RingProtocol kSimplePcie = {8.4, 5.7, 1};
constexpr RingProtocol kLowLatencyNvlink = {6.6, 0.6, 2};
constexpr RingProtocol kSimpleNvlink = {8.4, 3.4, 1};
// Through host memory across sockets: fitted to 205, 585 and 1,169 µs at 12, 96 and 384 KiB of 8
// cards on two sockets (SGLang 0.5.23).
constexpr RingProtocol kLowLatencySockets = {6.6, 10.6, 2};
constexpr RingProtocol kSimpleSockets = {8.4, 25.1, 1};
constexpr double kSocketsRate = 0.85 * kGigaPerSecond;
// Through host memory of one socket: 39 to 45 µs of small messages on 2 to 8 cards (sglang#39605,
// nccl#1530, sglang#32479), 1.9 GB/s of large ones (sglang#39605).
constexpr double kStagedBase = 40;
constexpr double kStagedRate = 2 * kGigaPerSecond;

int generation_of(const Machine& machine) {
  int generation = 0;
  for (const Device& device : machine.devices) {
    if (device.pcie_generation == 0) continue;
    generation =
        generation == 0 ? device.pcie_generation : std::min(generation, device.pcie_generation);
  }
  return generation;
}

const LinkDefault& default_of(const Machine& machine) {
  if (machine.link == DeviceLink::nvlink) return kNvlink;
  const int generation = generation_of(machine);
  const int wanted = generation == 0 ? kGenerationUnknown : generation;
  for (const LinkDefault& row : kPcie) {
    if (wanted >= row.generation) return row;
  }
  return kPcie[2];
}

std::string default_name(const Machine& machine) {
  if (machine.link == DeviceLink::nvlink) return "default of NVLink";
  const int generation = generation_of(machine);
  if (generation == 0) return "default of PCIe 4, as the machine does not say which";
  return fmt::format("default of PCIe {}", default_of(machine).generation);
}

}  // namespace

PeerPath peer_path(const Machine& machine) {
  if (machine.link == DeviceLink::nvlink) return PeerPath::nvlink;
  if (machine.peers.path != PeerPath::unknown) return machine.peers.path;
  const bool on_one_node = std::ranges::all_of(machine.devices, [&](const Device& device) {
    return device.numa_node == machine.devices.front().numa_node;
  });
  return on_one_node ? PeerPath::host_bridge : PeerPath::sockets;
}

bool has_peer_access(const Machine& machine) { return machine.peers.has_access.value_or(true); }

LinkCost link_cost(const Machine& machine) {
  const LinkDefault& row = default_of(machine);
  const PeerLinks& peers = machine.peers;
  LinkCost cost{.alpha = peers.latency_us > 0 ? peers.latency_us : row.alpha,
                .single = peers.bytes_per_us > 0 ? peers.bytes_per_us : row.single,
                .busy = peers.bytes_per_us_busy > 0 ? peers.bytes_per_us_busy : row.busy,
                .source = default_name(machine)};
  const int given = (peers.latency_us > 0 ? 1 : 0) + (peers.bytes_per_us > 0 ? 1 : 0) +
                    (peers.bytes_per_us_busy > 0 ? 1 : 0);
  if (given == 3) cost.source = "measured, by the description";
  if (given > 0 && given < 3) cost.source += ", in part measured, by the description";
  return cost;
}

RingCost nccl_peer_cost(const Machine& machine) {
  const LinkCost link = link_cost(machine);
  const bool is_nvlink = machine.link == DeviceLink::nvlink;
  return {.low_latency = is_nvlink ? kLowLatencyNvlink : kLowLatencyPcie,
          .simple = is_nvlink ? kSimpleNvlink : kSimplePcie,
          .rate = link.busy,
          .source = "NCCL 2.28.9's own model of a ring; " + link.source};
}

RingCost nccl_cost(const Machine& machine) {
  const PeerPath path = peer_path(machine);
  const bool is_near =
      path == PeerPath::nvlink || path == PeerPath::one_switch || path == PeerPath::switches;
  if (is_near && has_peer_access(machine)) return nccl_peer_cost(machine);
  if (path == PeerPath::sockets) {
    return {
        .low_latency = kLowLatencySockets,
        .simple = kSimpleSockets,
        .rate = kSocketsRate,
        .source = "a ring through host memory across sockets, fitted to 8 cards on two sockets"};
  }
  return {.by_host = true,
          .staged_base = kStagedBase,
          .staged_rate = kStagedRate,
          .source = "through host memory, default of machines where NCCL uses no peer access"};
}

}  // namespace plimsoll
