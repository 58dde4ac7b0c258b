#include "worker/kv/device_kv.h"

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"

namespace plimsoll {
namespace {

constexpr Bytes kBlock = 96 * kKiB;  // no whole number of granules

std::unique_ptr<Backend> make_backend(Bytes memory) {
  return make_cuda_backend(cuda::make_host_runtime({.memory = memory, .seed = 2}));
}

TEST(DeviceKv, TheNullBlockIsThereFirstAndTheRestWhenItIsMapped) {
  const auto backend = make_backend(kMiB);
  DeviceMemory& device = *backend->device_memory();
  auto kv = DeviceKv::reserve(device, kBlock, 1000);
  ASSERT_TRUE(kv) << kv.error().message;
  EXPECT_EQ(kv->null_bytes(), round_up(kBlock, device.granule()));
  EXPECT_EQ(device.state()->free, kMiB - kv->null_bytes());
  std::byte* const data = kv->data();
  data[-1] = std::byte{1};       // the null block's end
  data[-kBlock] = std::byte{1};  // and its begin
  ASSERT_TRUE(kv->map(5));
  EXPECT_EQ(kv->data(), data);
  data[5 * kBlock - 1] = std::byte{1};
  EXPECT_EQ(data[0], std::byte{0});
  EXPECT_EQ(device.state()->free, kMiB - round_up(6 * kBlock, device.granule()));
}

TEST(DeviceKv, BlocksThatTheNullBlocksGranuleHoldsTakeNothingMore) {
  const auto backend = make_backend(kMiB);
  DeviceMemory& device = *backend->device_memory();
  auto kv = DeviceKv::reserve(device, kKiB, 10);
  ASSERT_TRUE(kv);
  const Bytes free = device.state()->free;
  ASSERT_TRUE(kv->map(10));
  EXPECT_EQ(device.state()->free, free);
}

TEST(DeviceKv, WhatTheDeviceLacksIsAnError) {
  const auto backend = make_backend(kMiB);
  auto kv = DeviceKv::reserve(*backend->device_memory(), kBlock, 1000);
  ASSERT_TRUE(kv);
  const Status refused = kv->map(1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::does_not_fit);
  EXPECT_NE(refused.error().message.find("the KV cache"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
