#include "kernels/simulated/simulated_device.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(SimulatedDevice, CountsWhatEachTermTook) {
  SimulatedDevice device(94 * kGiB);
  ASSERT_TRUE(device.take("weights", 70 * kGiB));
  ASSERT_TRUE(device.take("context", kGiB));
  ASSERT_TRUE(device.take("weights", 2 * kGiB));
  EXPECT_EQ(device.terms().at("weights"), 72 * kGiB);
  EXPECT_EQ(device.taken(), 73 * kGiB);
  EXPECT_EQ(device.free(), 21 * kGiB);
}

TEST(SimulatedDevice, RefusesWhatItDoesNotHaveAndTakesNothingThen) {
  SimulatedDevice device(10 * kGiB);
  ASSERT_TRUE(device.take("weights", 8 * kGiB));
  const Status refused = device.take("kv", 3 * kGiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::does_not_fit);
  EXPECT_NE(refused.error().message.find("kv needs 3.00 GiB and 2.00 GiB of 10.00 GiB are free"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(device.free(), 2 * kGiB);
  EXPECT_TRUE(device.take("kv", 2 * kGiB));
}

TEST(SimulatedDevice, ANeighbourTakesWhatIsLeftAndIsNamed) {
  SimulatedDevice device(10 * kGiB);
  ASSERT_TRUE(device.take("weights", 7 * kGiB));
  device.take_by_neighbour(5 * kGiB);
  EXPECT_EQ(device.neighbour(), 3 * kGiB);
  EXPECT_EQ(device.free(), 0);
  const Status refused = device.take("kv", 1);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("a neighbour holds 3.00 GiB"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
