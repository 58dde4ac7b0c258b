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

TEST(DeviceChoice, GpusAreNamedByNumberOrUuid) {
  const Result<DeviceChoice> numbers = parse_device_choice("0, 3");
  ASSERT_TRUE(numbers) << numbers.error().message;
  EXPECT_EQ(numbers->kind, DeviceKind::cuda);
  EXPECT_EQ(numbers->gpus, (std::vector<std::string>{"0", "3"}));
  const Result<DeviceChoice> mixed = parse_device_choice("GPU-5fd3ab12-0b1c,1,MIG-7");
  ASSERT_TRUE(mixed) << mixed.error().message;
  EXPECT_EQ(mixed->gpus, (std::vector<std::string>{"GPU-5fd3ab12-0b1c", "1", "MIG-7"}));
  EXPECT_TRUE(parse_device_choice("cuda")->gpus.empty());
  EXPECT_EQ(parse_device_choice("cuda:0,2")->gpus, (std::vector<std::string>{"0", "2"}));
}

TEST(DeviceChoice, RefusesWhatIsNoDevice) {
  for (const char* text : {"", "gpu", "-1", "1000", "0,", "0,cpu", "0,1,0", "GPU-", "GPU-a b",
                           "simulated:", "simulated:96", "simulated:1KiB", "simulated:96GiB,",
                           "cuda:", "cuda:gpu", "cuda:0,", "simulated:99999TiB"}) {
    const Result<DeviceChoice> choice = parse_device_choice(text);
    ASSERT_FALSE(choice) << text;
    EXPECT_EQ(choice.error().code, Code::invalid);
  }
}

}  // namespace
}  // namespace plimsoll
