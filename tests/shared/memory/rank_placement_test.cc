#include "shared/memory/rank_placement.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

TEST(RankPlacement, RanksThatFillTheMachineGetDisjointCpusOfOneNodeEach) {
  const Machine machine = test_machine(kGiB, 8, 2);
  const std::vector<RankPlacement> placed = place_ranks(machine, 4, {});
  std::set<int> used;
  for (const RankPlacement& rank : placed) {
    EXPECT_EQ(rank.threads, 2);
    ASSERT_EQ(rank.cpus.size(), 2U);
    for (const int cpu : rank.cpus) {
      EXPECT_TRUE(used.insert(cpu).second) << cpu;
      EXPECT_EQ(cpu / 4, rank.numa_node);
    }
  }
}

TEST(RankPlacement, MoreRanksThanCpusAreNotBound) {
  for (const RankPlacement& rank : place_ranks(test_machine(kGiB, 2), 3, {})) {
    EXPECT_EQ(rank.threads, 1);
    EXPECT_TRUE(rank.cpus.empty());
  }
}

TEST(RankPlacement, ASmallDeploymentIsLeftToTheKernel) {
  EXPECT_TRUE(place_ranks(test_machine(kGiB, 8), 1, 2)[0].cpus.empty());
}

TEST(RankPlacement, ARankThatNoNodeCanHoldIsNotBound) {
  EXPECT_TRUE(place_ranks(test_machine(kGiB, 8, 2), 1, 8)[0].cpus.empty());
}

TEST(RankPlacement, AQuotaLimitsTheThreads) {
  Machine machine = test_machine(kGiB, 8);
  machine.cpu_quota = 2.5;
  EXPECT_EQ(usable_cpu_count(machine), 2);
  EXPECT_EQ(place_ranks(machine, 1, {})[0].threads, 2);
  machine.cpu_quota = 0.5;
  EXPECT_EQ(usable_cpu_count(machine), 1);
}

}  // namespace
}  // namespace plimsoll
