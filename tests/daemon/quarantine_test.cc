#include "daemon/quarantine.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Machine machine(std::int64_t devices) {
  Machine machine;
  for (std::int64_t i = 0; i < devices; ++i) {
    Device& device = machine.devices.emplace_back();
    device.name = "NVIDIA H200";
    device.uuid = "GPU-" + std::to_string(i);
    device.memory_total = 8 * kGiB;
    device.memory_free = 8 * kGiB;
  }
  return machine;
}

Quarantine quarantine(std::initializer_list<const char*> uuids) {
  Quarantine all;
  for (const char* uuid : uuids) all.push_back({uuid, "NVIDIA H200", "Xid 79", TimePoint()});
  return all;
}

Options options(std::int64_t tp, std::int64_t dp) {
  Options options;
  options.tp = tp;
  options.dp = dp;
  return options;
}

MemoryPlan plan(std::int64_t ranks) {
  MemoryPlan plan;
  for (std::int64_t i = 0; i < ranks; ++i) {
    RankPlan& rank = plan.ranks.emplace_back();
    rank.device_uuid = "GPU-" + std::to_string(i);
    rank.device_total = 8 * kGiB;
  }
  return plan;
}

TEST(Quarantine, WithoutItEverythingIsUsed) {
  Machine all = machine(4);
  EXPECT_EQ(leave_out({}, options(2, 2), all).value(), 2);
  EXPECT_EQ(leave_out(quarantine({"GPU-9"}), options(2, 2), all).value(), 2);
  EXPECT_EQ(leave_out(quarantine({"GPU-9"}), options(2, 3), all).value(), 2) << "it is one of them";
  EXPECT_EQ(all.devices.size(), 4U);
}

TEST(Quarantine, ASpareDeviceTakesThePlaceAndElseAReplicaLess) {
  Machine five = machine(5);
  EXPECT_EQ(leave_out(quarantine({"GPU-1"}), options(2, 2), five).value(), 2);
  ASSERT_EQ(five.devices.size(), 4U);
  EXPECT_EQ(five.devices[1].uuid, "GPU-2");
  Machine four = machine(4);
  EXPECT_EQ(leave_out(quarantine({"GPU-1"}), options(2, 2), four).value(), 1);
}

TEST(Quarantine, GroupsOfExpertsStayWhole) {
  Options wanted = options(2, 4);
  wanted.ep = 4;
  Machine all = machine(8);
  EXPECT_EQ(leave_out(quarantine({"GPU-7"}), wanted, all).value(), 2) << "six are no two groups";
}

TEST(Quarantine, WhatIsNotEnoughForOneReplicaSaysWhatWouldWork) {
  Machine all = machine(4);
  const Result<std::int64_t> dp = leave_out(quarantine({"GPU-1"}), options(4, 1), all);
  ASSERT_FALSE(dp);
  EXPECT_EQ(dp.error().code, Code::does_not_fit);
  EXPECT_EQ(dp.error().message,
            "devices: one replica needs 4, and 3 are left; in quarantine: GPU-1 (NVIDIA H200): Xid "
            "79; have them reset and `plimsoll restart`, or serve with tp 3");
  EXPECT_EQ(dp.error().message.find('\n'), std::string::npos);
}

TEST(Quarantine, WhereAllDevicesAreLostTheCpuIsNoneOfThem) {
  Machine none;
  EXPECT_FALSE(leave_out(quarantine({"GPU-1"}), options(1, 1), none));
  Options on_cpu = options(1, 2);
  on_cpu.devices = "cpu";
  EXPECT_EQ(leave_out(quarantine({"GPU-1"}), on_cpu, none).value(), 2);
}

TEST(Quarantine, ALayoutThatIsLeftToThePlanStaysOpenWhereDevicesAreLeft) {
  Machine three = machine(3);
  EXPECT_EQ(leave_out(quarantine({"GPU-1"}), options(0, 0), three).value(), 0);
  EXPECT_EQ(three.devices.size(), 2U);
  EXPECT_EQ(leave_out(quarantine({"GPU-1"}), options(2, 0), three).value(), 0);
  EXPECT_FALSE(leave_out(quarantine({"GPU-1"}), options(4, 0), three));
  Machine none;
  EXPECT_FALSE(leave_out(quarantine({"GPU-1"}), options(0, 0), none));
}

TEST(Quarantine, SimulatedDevicesAreKnownByTheirPlace) {
  Machine all = machine(2);
  all.devices[1].uuid.clear();
  all.devices[1].is_simulated = true;
  name_simulated(all);
  EXPECT_EQ(all.devices[0].uuid, "GPU-0");
  EXPECT_EQ(all.devices[1].uuid, "simulated-1");
}

TEST(Quarantine, AReplicaMovesToDevicesThatNobodyUses) {
  const Machine all = machine(6);
  MemoryPlan used = plan(4);
  const std::vector<std::string> in_use = {"GPU-0", "GPU-1"};
  const Quarantine lost = quarantine({"GPU-2", "GPU-4"});
  ASSERT_TRUE(
      move_to_spares({.devices = all.devices, .in_use = in_use, .quarantine = lost}, 1, 2, used));
  EXPECT_EQ(devices_of(used, 0, 2), in_use);
  EXPECT_EQ(devices_of(used, 1, 2), (std::vector<std::string>{"GPU-3", "GPU-5"}));
  EXPECT_EQ(used.ranks[3].device, 5);
}

TEST(Quarantine, ADeviceWithoutRoomIsNoSpareAndNothingIsMovedByHalves) {
  Machine all = machine(5);
  MemoryPlan used = plan(4);
  const std::vector<std::string> in_use = {"GPU-0", "GPU-1"};
  const Quarantine lost = quarantine({"GPU-2"});
  all.devices[4].memory_total = kGiB;
  EXPECT_FALSE(
      move_to_spares({.devices = all.devices, .in_use = in_use, .quarantine = lost}, 1, 2, used));
  EXPECT_EQ(devices_of(used, 1, 2), (std::vector<std::string>{"GPU-2", "GPU-3"}));
  EXPECT_TRUE(devices_of(MemoryPlan(), 0, 2).empty()) << "of the CPU";
}

}  // namespace
}  // namespace plimsoll
