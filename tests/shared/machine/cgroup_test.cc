#include "shared/machine/cgroup.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/support/fake_root.h"

namespace plimsoll {
namespace {

constexpr Bytes kNone = std::numeric_limits<Bytes>::max();
constexpr const char* kV2Mount =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(Cgroup, NothingToReadLimitsNothing) {
  const FakeRoot root("cgroup_nothing");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.memory, kNone);
  EXPECT_EQ(limits.cpus, 0);
}

TEST(Cgroup, V2TakesTheAncestorWithTheLeastLeft) {
  const FakeRoot root("cgroup_v2");
  root.file("proc/self/cgroup", "0::/machine/app\n");
  root.file("proc/self/mountinfo", kV2Mount);
  root.file("sys/fs/cgroup/machine/app/memory.max", "8589934592\n");
  root.file("sys/fs/cgroup/machine/app/memory.current", "1073741824\n");
  root.file("sys/fs/cgroup/machine/app/cpu.max", "max 100000\n");
  root.file("sys/fs/cgroup/machine/memory.max", "9663676416\n");
  root.file("sys/fs/cgroup/machine/memory.current", "8589934592\n");
  root.file("sys/fs/cgroup/machine/memory.stat",
            "anon 1\ninactive_file 1073741824\nactive_file 1073741824\n");
  root.file("sys/fs/cgroup/machine/cpu.max", "150000 100000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.memory, 9663676416);  // 3 GiB left there, 7 GiB in the group itself
  EXPECT_EQ(limits.memory_used, 6 * kGiB);
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
}

TEST(Cgroup, V2WithoutALimitHasNone) {
  const FakeRoot root("cgroup_v2_max");
  root.file("proc/self/cgroup", "0::/\n");
  root.file("proc/self/mountinfo", kV2Mount);
  root.file("sys/fs/cgroup/memory.max", "max\n");
  root.file("sys/fs/cgroup/memory.current", "5\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).memory, kNone);
}

TEST(Cgroup, V1InAContainerWhoseMountIsTheGroup) {
  const FakeRoot root("cgroup_v1");
  root.file("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n");
  root.file(
      "proc/self/mountinfo",
      "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "36 31 0:33 /docker/abc /sys/fs/cgroup/cpu ro shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  root.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n");
  root.file("sys/fs/cgroup/memory/memory.stat",
            "inactive_file 7\ntotal_inactive_file 1073741824\ntotal_active_file 0\n");
  root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  root.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.memory, 4 * kGiB);
  EXPECT_EQ(limits.memory_used, kGiB);
  EXPECT_DOUBLE_EQ(limits.cpus, 2.5);
}

TEST(Cgroup, HybridTakesTheV1GroupBelowTheMount) {
  const FakeRoot root("cgroup_hybrid");
  root.file("proc/self/cgroup", "4:memory:/jobs/7\n1:cpu:/\n0::/\n");
  root.file("proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.file("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "2147483648\n");
  root.file("sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "1048576\n");
  root.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_EQ(limits.memory, 2 * kGiB);
  EXPECT_EQ(limits.memory_used, kMiB);
  EXPECT_EQ(limits.cpus, 0);
}

}  // namespace
}  // namespace plimsoll
