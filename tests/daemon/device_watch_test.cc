#include "daemon/device_watch.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(DeviceWatch, WithoutADeviceThereIsNoThreadAndNothingToTake) {
  DeviceWatch watch;
  watch.watch("");  // a rank on the CPU
  watch.examine();
  EXPECT_EQ(watch.fd(), -1);
  EXPECT_TRUE(watch.take().empty());
}

TEST(DeviceWatch, WithoutADriverItEndsByItself) {
  DeviceWatch watch("libnvidia-ml-that-is-not-there.so.1");
  watch.watch("GPU-1");
  watch.watch("GPU-2");
  watch.examine();
  EXPECT_GE(watch.fd(), 0);
  EXPECT_TRUE(watch.take().empty());
}

}  // namespace
}  // namespace plimsoll
