#include "shared/options/device_choice.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(DeviceChoice, ReadsEveryKind) {
  EXPECT_EQ(parse_device_choice("auto")->kind, DeviceKind::automatic);
  EXPECT_EQ(parse_device_choice("cpu")->kind, DeviceKind::cpu);
  EXPECT_EQ(parse_device_choice("cuda")->kind, DeviceKind::cuda);
  EXPECT_EQ(parse_device_choice("cuda:host")->kind, DeviceKind::cuda_host);
  EXPECT_TRUE(parse_device_choice("simulated")->sizes.empty());
}

TEST(DeviceChoice, SimulatedDevicesHaveSizesThatRepeat) {
  const Result<DeviceChoice> uneven = parse_device_choice("simulated:94GiB,96GiB");
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->kind, DeviceKind::simulated);
  EXPECT_EQ(uneven->size_of(0), 94 * kGiB);
  EXPECT_EQ(uneven->size_of(1), 96 * kGiB);
  EXPECT_EQ(uneven->size_of(2), 94 * kGiB);
}

TEST(DeviceChoice, RefusesWhatIsNoDevice) {
  for (const char* text : {"", "gpu", "0", "simulated:", "simulated:96", "simulated:1KiB",
                           "simulated:96GiB,", "cuda:0,1", "simulated:99999TiB"}) {
    const Result<DeviceChoice> choice = parse_device_choice(text);
    ASSERT_FALSE(choice) << text;
    EXPECT_EQ(choice.error().code, Code::invalid);
  }
}

}  // namespace
}  // namespace plimsoll
