#include "shared/memory/device_budget.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

Device device_with(Bytes free) {
  Device device;
  device.memory_total = 96 * kGiB;
  device.memory_free = free;
  return device;
}

TEST(DeviceBudget, IsWhatIsFreeAndTheBaseIsThatWithoutTheStart) {
  const DeviceBudget budget = decide_device_budget(device_with(95 * kGiB), kGiB, {}, {});
  EXPECT_EQ(budget.limit, 95 * kGiB);
  EXPECT_EQ(budget.free_before_weights, 94 * kGiB);
  EXPECT_EQ(budget.trust, Trust::computed);
}

TEST(DeviceBudget, WhatWasMeasuredOrAssumedBeforeWeightsWins) {
  Device device = device_with(95 * kGiB);
  device.free_before_weights = 94 * kGiB;
  const DeviceBudget measured = decide_device_budget(device, kGiB, {}, {});
  EXPECT_EQ(measured.free_before_weights, 94 * kGiB);
  EXPECT_EQ(measured.limit, 95 * kGiB);
  EXPECT_EQ(measured.trust, Trust::measured);
  const DeviceBudget assumed = decide_device_budget(device, kGiB, 50 * kGiB, {});
  EXPECT_EQ(assumed.limit, 51 * kGiB);
  EXPECT_EQ(assumed.trust, Trust::assumed);
}

// Described with the communicators of tensor parallelism; those of experts take more.
TEST(DeviceBudget, WhatIsMeasuredBeforeWeightsNeverMakesMoreThanIsFree) {
  Device device = device_with(95 * kGiB);
  device.free_before_weights = 94 * kGiB;
  const DeviceBudget budget = decide_device_budget(device, 4 * kGiB, {}, {});
  EXPECT_EQ(budget.limit, 95 * kGiB);
  EXPECT_EQ(budget.free_before_weights, 91 * kGiB);
}

TEST(DeviceBudget, ALimitBelowTheCardCounts) {
  Options options;
  options.device_memory = 23 * kGiB;
  const DeviceBudget budget = decide_device_budget(device_with(79 * kGiB), kGiB, {}, options);
  EXPECT_EQ(budget.limit, 23 * kGiB);
  EXPECT_EQ(budget.free_before_weights, 22 * kGiB);
}

TEST(DeviceBudget, ASharedMemoryKeepsItsFloorForTheHost) {
  Device device = device_with(60 * kGiB);
  device.is_unified = true;
  EXPECT_EQ(decide_device_budget(device, kGiB, {}, {}).limit, 60 * kGiB - kHostFloor);
  device.memory_free = kGiB;
  EXPECT_EQ(decide_device_budget(device, kGiB, {}, {}).limit, 0);
}

}  // namespace
}  // namespace plimsoll
