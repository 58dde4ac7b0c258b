#include "shared/collective/link_cost.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Machine with(int generation) {
  Machine machine;
  machine.devices.resize(4);
  for (Device& device : machine.devices) device.pcie_generation = generation;
  return machine;
}

TEST(LinkCost, DefaultsAreOfTheSlowestCardsGeneration) {
  EXPECT_EQ(link_cost(with(5)).busy, 25'000);
  EXPECT_EQ(link_cost(with(4)).busy, 12'000);
  EXPECT_EQ(link_cost(with(3)).busy, 10'000);
  EXPECT_EQ(link_cost(with(6)).busy, 25'000) << "newer than we know";
  EXPECT_EQ(link_cost(with(1)).busy, 10'000) << "older than we know";
  Machine mixed = with(5);
  mixed.devices[2].pcie_generation = 3;
  EXPECT_EQ(link_cost(mixed).busy, 10'000);
  EXPECT_EQ(link_cost(with(5)).source, "default of PCIe 5");
  EXPECT_EQ(link_cost(with(0)).source, "default of PCIe 4, as the machine does not say which");
}

TEST(LinkCost, NvlinkIsNvlinkWhateverTheSlots) {
  Machine machine = with(4);
  machine.link = DeviceLink::nvlink;
  EXPECT_EQ(link_cost(machine).busy, 350'000);
  EXPECT_EQ(peer_path(machine), PeerPath::nvlink);
}

TEST(LinkCost, AnUnknownPathIsToldByTheNodesOfTheCards) {
  Machine machine = with(5);
  EXPECT_EQ(peer_path(machine), PeerPath::host_bridge);
  machine.devices[3].numa_node = 1;
  EXPECT_EQ(peer_path(machine), PeerPath::sockets);
  machine.peers.path = PeerPath::one_switch;
  EXPECT_EQ(peer_path(machine), PeerPath::one_switch) << "what is said goes first";
}

TEST(LinkCost, NcclPassesNoHostBridgeByItself) {
  Machine machine = with(5);
  EXPECT_TRUE(nccl_cost(machine).by_host);
  EXPECT_FALSE(nccl_peer_cost(machine).by_host);
  machine.peers.path = PeerPath::switches;
  EXPECT_FALSE(nccl_cost(machine).by_host);
  machine.peers.has_access = false;
  EXPECT_TRUE(nccl_cost(machine).by_host) << "no peer access, however near";
}

}  // namespace
}  // namespace plimsoll
