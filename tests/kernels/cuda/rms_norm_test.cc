// RmsNorm, kernel by kernel: what it quantises, and that no barrier of it can be spared.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/host_runtime.h"
#include "tests/kernels/cuda/dropped_barriers.h"
#include "tests/kernels/cuda/test_kernels.h"
#include "tests/kernels/stored_matrix.h"

// The same kernel, with barriers that can be left out.
#undef KERNEL
#define KERNEL(name, Arguments, threads_max) void with_barriers_##name(const Arguments& args)
#define __syncthreads() plimsoll::testing_kernels::barrier(__FILE__, __LINE__)
#include "kernels/cuda/rms_norm.cu"
#undef __syncthreads

namespace plimsoll::cuda {
namespace {

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kCols = 352;

struct Case {
  std::vector<float> in = random_floats(kTokens * kCols, 1);
  std::vector<float> weight = random_floats(kCols, 2);
  std::vector<std::int8_t> quants = std::vector<std::int8_t>(kTokens * kCols);
  std::vector<ActivationScale> scales = std::vector<ActivationScale>(kTokens * kCols / 32);
  std::vector<float> values = std::vector<float>(kTokens * kCols, NAN);

  NormArguments arguments() {
    return {.in = in.data(),
            .in_stride = kCols,
            .weight = weight.data(),
            .eps = 1e-5F,
            .cols = kCols,
            .quants = quants.data(),
            .scales = scales.data(),
            .values = values.data(),
            .added = nullptr,
            .added_stride = 0,
            .cleared = nullptr};
  }
  double expected(std::int64_t token, std::int64_t c) const {
    double squares = 0;
    for (std::int64_t i = 0; i < kCols; ++i) squares += std::pow(at(in, token * kCols + i), 2);
    return at(in, token * kCols + c) / std::sqrt(squares / kCols + 1e-5) * at(weight, c);
  }
  bool is_right() const {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t c = 0; c < kCols; ++c) {
        const double difference = std::fabs(at(values, t * kCols + c) - expected(t, c));
        if (!(difference < 1e-5)) return false;
      }
    }
    return true;
  }
  template <typename T>
  static double at(const std::vector<T>& from, std::int64_t index) {
    return static_cast<double>(from[static_cast<std::size_t>(index)]);
  }
};

constexpr LaunchShape kShape{.grid = {kTokens}, .block = {256}};

TEST(CudaRmsNorm, QuantisesWhatADoubleLoopNorms) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    Case test;
    const NormArguments arguments = test.arguments();
    host_cuda::Executor executor({.seed = seed});
    ASSERT_TRUE(executor.run(host_grid(Kernel::rms_norm, kShape, &arguments)));
    EXPECT_TRUE(test.is_right()) << "seed " << seed;
    for (std::int64_t i = 0; i < kTokens * kCols; i += 32) {
      const ActivationScale& scale = test.scales[static_cast<std::size_t>(i / 32)];
      double largest = 0;
      int sums[2] = {};
      for (std::int64_t k = 0; k < 32; ++k) {
        largest = std::max(largest, std::fabs(Case::at(test.values, i + k)));
        sums[k / 16] += test.quants[static_cast<std::size_t>(i + k)];
        EXPECT_NEAR(scale.scale * Case::at(test.quants, i + k), Case::at(test.values, i + k),
                    0.501 * static_cast<double>(scale.scale));
      }
      EXPECT_NEAR(scale.scale, largest / 127, 1e-6);
      EXPECT_EQ(scale.negative_sums[0], -sums[0]);
      EXPECT_EQ(scale.negative_sums[1], -sums[1]);
    }
  }
}

TEST(CudaRmsNorm, WithoutAWeightItQuantisesItsInput) {
  Case test;
  NormArguments arguments = test.arguments();
  arguments.weight = nullptr;
  host_cuda::Executor executor({.seed = 2});
  ASSERT_TRUE(executor.run(host_grid(Kernel::rms_norm, kShape, &arguments)));
  EXPECT_EQ(test.values, test.in);
}

TEST(CudaRmsNorm, NeedsEveryBarrier) {
  testing_kernels::expect_every_barrier_is_needed(
      "rms_norm.cu", {.count = 1}, [](host_cuda::Executor& executor) -> Result<bool> {
        Case test;
        const NormArguments arguments = test.arguments();
        TRY(executor.run(testing_kernels::grid_of<with_barriers_rms_norm>(
            "rms_norm", {kTokens, 1, 1}, {256, 1, 1}, &arguments)));
        return test.is_right();
      });
}

}  // namespace
}  // namespace plimsoll::cuda
