#include "tools/gpu_check/speed_check.h"

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"

namespace plimsoll {
namespace {

TEST(SpeedCheck, EverythingIsMeasuredWithWhatItReadsAndComputes) {
  const auto backend =
      make_cuda_backend(cuda::make_host_runtime({.memory = 256 * kMiB, .seed = 3}));
  const auto speeds = measure_speeds(*backend, small_size());
  ASSERT_TRUE(speeds) << speeds.error().message;
  ASSERT_EQ(speeds->size(), 10U);
  for (const Speed& speed : *speeds) {
    EXPECT_GT(speed.seconds, 0) << speed.name;
    EXPECT_GT(speed.bytes, 0) << speed.name;
    EXPECT_GT(speed.products, 0) << speed.name;
  }
  EXPECT_EQ((*speeds)[0].name, "linear Q4_1, 1 tokens");
  EXPECT_EQ((*speeds)[0].bytes, 2.0 * 64 * 256 / 32 * 20);
  EXPECT_EQ((*speeds)[0].products, 2.0 * 64 * 256);
}

}  // namespace
}  // namespace plimsoll
