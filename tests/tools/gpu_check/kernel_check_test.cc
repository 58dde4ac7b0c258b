#include "tools/gpu_check/kernel_check.h"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"

namespace plimsoll {
namespace {

std::unique_ptr<Backend> cpu_backend() {
  auto made = make_cpu_backend({.threads = 1, .cpus = {}, .spin = false, .path = CpuPath::scalar});
  EXPECT_TRUE(made);
  return std::move(*made);
}

TEST(KernelCheck, TheHostExecutorPassesEveryCheck) {
  const auto tested = make_cuda_backend(cuda::make_host_runtime({.memory = 256 * kMiB, .seed = 3}));
  const auto reference = cpu_backend();
  const auto checks = check_kernels(*tested, *reference, 1);
  ASSERT_GT(checks.size(), 40U);
  for (const KernelCheck& check : checks) {
    EXPECT_TRUE(check.passed()) << check.name << ": " << check.worst << " " << check.error;
  }
}

TEST(KernelCheck, WhatTheDeviceFailsByIsSaidCheckByCheck) {
  const auto tested = make_cuda_backend(cuda::make_host_runtime({.memory = 4 * kMiB, .seed = 3}));
  const auto reference = cpu_backend();
  const auto checks = check_kernels(*tested, *reference, 1);
  ASSERT_FALSE(checks.empty());
  EXPECT_FALSE(checks.back().passed());
  EXPECT_NE(checks.back().error.find("out of memory"), std::string::npos);
}

TEST(KernelCheck, NoNumberIsNoPass) {
  KernelCheck check{.name = "attention", .worst = 2, .tolerance = 1, .error = {}};
  EXPECT_FALSE(check.passed());
  check.worst = 1;
  EXPECT_TRUE(check.passed());
  check.error = "the device is gone";
  EXPECT_FALSE(check.passed());
}

}  // namespace
}  // namespace plimsoll
