#include "kernels/cuda/host_runtime.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll::cuda {
namespace {

TEST(HostRuntime, WorkRunsWhenItIsWaitedFor) {
  const auto runtime = make_host_runtime({.memory = 1 << 20, .seed = 2});
  auto* device = reinterpret_cast<float*>(runtime->allocate(64, "values")->data());
  std::vector<float> host = {1, 2, 3};
  runtime->copy_in(device, host.data(), 12);
  EXPECT_EQ(device[0], 0);
  host[0] = 9;  // too early: what is copied must stay
  ASSERT_TRUE(runtime->synchronize());
  EXPECT_EQ(device[0], 9);
  EXPECT_EQ(device[2], 3);
}

TEST(HostRuntime, KernelsRunInTheOrderOfTheirLaunches) {
  const auto runtime = make_host_runtime({.memory = 1 << 20, .seed = 2});
  const std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> between(4), out(4);
  const std::vector<std::int32_t> rows = {1, 0};
  const auto swap = [&](const float* from, float* to) {
    runtime->launch(Kernel::copy_rows, {.grid = {2}, .block = {32}},
                    CopyRowsArguments{.in = from,
                                      .in_stride = 2,
                                      .rows = rows.data(),
                                      .cols = 2,
                                      .out = to,
                                      .out_stride = 2});
  };
  swap(in.data(), between.data());
  swap(between.data(), out.data());
  ASSERT_TRUE(runtime->synchronize());
  EXPECT_EQ(between, (std::vector<float>{3, 4, 1, 2}));
  EXPECT_EQ(out, in);
}

TEST(HostRuntime, GivesNoMoreMemoryThanItHas) {
  const auto runtime = make_host_runtime({.memory = 1000, .seed = 0});
  ASSERT_TRUE(runtime->allocate(600, "weights"));
  EXPECT_EQ(runtime->memory()->free, 400);
  const auto refused = runtime->allocate(401, "the KV cache");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::does_not_fit);
  EXPECT_NE(refused.error().message.find("the KV cache"), std::string::npos);
}

TEST(HostRuntime, WhatIsRecordedRunsWhenItIsReplayed) {
  const auto runtime = make_host_runtime({.memory = 1 << 20, .seed = 2});
  std::vector<float> in = {1, 2}, out(2);
  const std::vector<std::int32_t> rows = {0};
  ASSERT_TRUE(runtime->begin_recording());
  runtime->launch(Kernel::copy_rows, {.grid = {1}, .block = {32}},
                  CopyRowsArguments{.in = in.data(),
                                    .in_stride = 2,
                                    .rows = rows.data(),
                                    .cols = 2,
                                    .out = out.data(),
                                    .out_stride = 2});
  const auto recording = runtime->end_recording();
  ASSERT_TRUE(recording);
  ASSERT_TRUE(runtime->synchronize());
  EXPECT_EQ(out, std::vector<float>(2));
  for (const float value : {3.0F, 4.0F}) {
    in[0] = value;
    runtime->replay(*recording);
    ASSERT_TRUE(runtime->synchronize());
    EXPECT_EQ(out[0], value);
  }
}

TEST(HostRuntime, ReservedAddressesTakeMemoryWhereTheyAreMapped) {
  const auto runtime = make_host_runtime({.memory = 1 << 20, .seed = 2});
  const Bytes granule = runtime->granule();
  const auto range = runtime->reserve(3 * granule - 1, "KV");
  ASSERT_TRUE(range);
  EXPECT_EQ(std::ssize(*range), 3 * granule);
  EXPECT_EQ(runtime->memory()->free, 1 << 20);
  const auto part = range->subspan(static_cast<std::size_t>(granule), 1);
  ASSERT_TRUE(runtime->map(part, "KV"));
  EXPECT_EQ(runtime->memory()->free, (1 << 20) - granule);
  EXPECT_EQ(part[0], std::byte{0});
  part[0] = std::byte{1};
  const auto large = runtime->reserve(2 << 20, "KV");
  ASSERT_TRUE(large);
  const Status refused = runtime->map(*large, "the KV cache");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::does_not_fit);
}

#if !defined(__SANITIZE_THREAD__)  // a launch that ends in an error leaves its threads unordered
TEST(HostRuntime, AFailureStays) {
  const auto runtime = make_host_runtime({.memory = 1000, .seed = 0});
  runtime->launch(Kernel::copy_rows, {.grid = {1}, .block = {2000}}, CopyRowsArguments{});
  const Status first = runtime->synchronize();
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("copy_rows"), std::string::npos);
  EXPECT_FALSE(runtime->synchronize());
}
#endif

}  // namespace
}  // namespace plimsoll::cuda
