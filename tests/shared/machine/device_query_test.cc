#include "shared/machine/device_query.h"

#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

void fill(const FakeRoot& root) {
  root.file("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  root.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Imaginary 9000\n");
  root.file("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1-3,6\n");
}

TEST(DeviceQuery, ReadsAWholeMachine) {
  const FakeRoot root("machine_whole");
  fill(root);
  root.file("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.file("sys/devices/system/node/node1/cpulist", "4-7\n");
  root.file("sys/devices/system/node/node2/cpulist", "\n");
  root.file("sys/devices/system/node/possible", "0-2\n");
  const Result<Machine> machine = query_machine(root.path());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->cpu_name, "Imaginary 9000");
  EXPECT_EQ(machine->cpus, (std::vector<int>{1, 2, 3, 6}));
  ASSERT_EQ(machine->nodes.size(), 2U);
  EXPECT_EQ(machine->nodes[0].cpus, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(machine->nodes[1].id, 1);
  EXPECT_EQ(machine->nodes[1].cpus, (std::vector<int>{6}));
  EXPECT_EQ(machine->memory_total, 16 * kGiB);
  EXPECT_EQ(machine->memory_available, 8 * kGiB);
  EXPECT_EQ(machine->cgroup_limit, 0);
}

TEST(DeviceQuery, WithoutNodesAllCpusAreInOne) {
  const FakeRoot root("machine_flat");
  fill(root);
  const Result<Machine> machine = query_machine(root.path());
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->nodes.size(), 1U);
  EXPECT_EQ(machine->nodes[0].cpus, machine->cpus);
}

TEST(DeviceQuery, ALimitAboveTheMachineIsNone) {
  const FakeRoot root("machine_limit");
  fill(root);
  root.file("proc/self/cgroup", "0::/\n");
  root.file("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.file("sys/fs/cgroup/memory.current", "1048576\n");
  root.file("sys/fs/cgroup/memory.max", "34359738368\n");
  EXPECT_EQ(query_machine(root.path())->cgroup_limit, 0);
  root.file("sys/fs/cgroup/memory.max", "1073741824\n");
  const Result<Machine> limited = query_machine(root.path());
  EXPECT_EQ(limited->cgroup_limit, kGiB);
  EXPECT_EQ(limited->cgroup_used, kMiB);
}

TEST(DeviceQuery, WhatIsMissingIsAnError) {
  const FakeRoot root("machine_missing");
  EXPECT_FALSE(query_machine(root.path()));
  fill(root);
  root.file("proc/meminfo", "MemTotal: many kB\n");
  EXPECT_FALSE(query_machine(root.path()));
  fill(root);
  root.file("proc/self/status", "Cpus_allowed_list:\t\n");
  EXPECT_FALSE(query_machine(root.path()));
}

TEST(DeviceQuery, ReadsThisMachine) {
  const Result<Machine> machine = query_machine();
  ASSERT_TRUE(machine) << machine.error().message;
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(static_cast<int>(machine->cpus.size()), CPU_COUNT(&set));
  EXPECT_GT(machine->memory_available, 0);
  EXPECT_LE(machine->memory_available, machine->memory_total);
}

TEST(DeviceQuery, CpuListsAreSortedAndTolerant) {
  EXPECT_EQ(parse_cpu_list("8,0-2,1"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(parse_cpu_list("x,3-1,-4,5"), (std::vector<int>{5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("0-999999999999").empty());
}

}  // namespace
}  // namespace plimsoll
