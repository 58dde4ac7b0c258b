#include "shared/memory/memory_budget.h"

#include <gtest/gtest.h>

#include "tests/support/plan_cases.h"

namespace plimsoll {
namespace {

TEST(MemoryBudget, IsHalfOfWhatIsAvailableDividedByRanks) {
  const MemoryBudget budget =
      decide_budget(test_machine(8 * kGiB), test_options({"--tp=2", "--dp=2"}).values);
  EXPECT_EQ(budget.per_rank, kGiB);
  EXPECT_EQ(budget.per_rank_max, 2 * kGiB);
  EXPECT_EQ(budget.source, "half of what is available");
}

TEST(MemoryBudget, WhatACgroupLeavesCountsWhereItIsLess) {
  Machine machine = test_machine(8 * kGiB);
  machine.cgroup_limit = 3 * kGiB;
  machine.cgroup_used = 1 * kGiB;
  const MemoryBudget budget = decide_budget(machine, {});
  EXPECT_EQ(budget.available, 2 * kGiB);
  EXPECT_EQ(budget.per_rank, kGiB);
  EXPECT_NE(budget.source.find("cgroup"), std::string::npos);
}

TEST(MemoryBudget, ACgroupBeyondItsLimitLeavesNothing) {
  Machine machine = test_machine(8 * kGiB);
  machine.cgroup_limit = kGiB;
  machine.cgroup_used = 2 * kGiB;
  EXPECT_EQ(decide_budget(machine, {}).per_rank, 0);
}

TEST(MemoryBudget, DeviceMemoryIsTakenAsGivenUpToWhatIsThere) {
  const Machine machine = test_machine(8 * kGiB);
  EXPECT_EQ(decide_budget(machine, test_options({"--device-memory=7GiB"}).values).per_rank,
            7 * kGiB);
  const MemoryBudget cut = decide_budget(machine, test_options({"--device-memory=9GiB"}).values);
  EXPECT_EQ(cut.per_rank, 8 * kGiB);
  ASSERT_TRUE(cut.note);
  EXPECT_NE(cut.note->find("9.00 GiB"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
