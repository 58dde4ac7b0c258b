#include "tools/gpu_check/kernel_check.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

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

struct CheckRun {
  bool finished = false;
  std::vector<std::string> begun;
  std::vector<KernelCheck> checks;
};

CheckRun run_checks(Bytes memory, std::size_t from) {
  CheckRun run;
  const auto tested = make_cuda_backend(cuda::make_host_runtime({.memory = memory, .seed = 3}));
  const auto reference = cpu_backend();
  run.finished = check_kernels(
      *tested, *reference,
      {.seed = 1,
       .from = from,
       .begins = [&](std::size_t, const std::string& name) { run.begun.push_back(name); },
       .ended = [&](const KernelCheck& check) { run.checks.push_back(check); }});
  return run;
}

TEST(KernelCheck, TheHostExecutorPassesEveryCheck) {
  const CheckRun run = run_checks(384 * kMiB, 0);
  EXPECT_TRUE(run.finished);
  ASSERT_GT(run.checks.size(), 90U);
  for (std::size_t i = 0; i < run.checks.size(); ++i) {
    const KernelCheck& check = run.checks[i];
    EXPECT_TRUE(check.passed()) << check.name << ": " << check.worst << " " << check.error;
    EXPECT_EQ(check.index, i);
    EXPECT_EQ(check.name, run.begun[i]);
  }
  // A part of it has the same inputs, and so the same figures.
  const std::size_t from = run.checks.size() - 3;
  const CheckRun last = run_checks(384 * kMiB, from);
  ASSERT_EQ(last.checks.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(last.checks[i].name, run.checks[from + i].name);
    EXPECT_EQ(last.checks[i].worst, run.checks[from + i].worst);
  }
}

TEST(KernelCheck, ARunEndsWithWhatTheDeviceFailsBy) {
  const CheckRun run = run_checks(4 * kMiB, 0);
  EXPECT_FALSE(run.finished);
  ASSERT_FALSE(run.checks.empty());
  EXPECT_FALSE(run.checks.back().passed());
  EXPECT_NE(run.checks.back().error.find("out of memory"), std::string::npos);
  for (std::size_t i = 0; i + 1 < run.checks.size(); ++i) EXPECT_TRUE(run.checks[i].passed());
}

TEST(KernelCheck, NoNumberIsNoPass) {
  KernelCheck check{.index = 0, .name = "attention", .worst = 2, .tolerance = 1, .error = {}};
  EXPECT_FALSE(check.passed());
  check.worst = 1;
  EXPECT_TRUE(check.passed());
  check.error = "the device is gone";
  EXPECT_FALSE(check.passed());
}

}  // namespace
}  // namespace plimsoll
