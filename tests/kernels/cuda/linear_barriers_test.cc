// LinearBarriers: each barrier of linear.cu and linear_mma.cu, left out in turn, shows in values.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/pack.h"
#include "tests/kernels/cuda/dropped_barriers.h"
#include "tests/kernels/cuda/test_kernels.h"
#include "tests/kernels/stored_matrix.h"

#undef KERNEL
#define KERNEL(name, Arguments, threads_max) \
  [[maybe_unused]] void with_barriers_##name(const Arguments& args)
#define __syncthreads() plimsoll::testing_kernels::barrier(__FILE__, __LINE__)
#include "kernels/cuda/linear.cu"
#include "kernels/cuda/linear_mma.cu"
#undef __syncthreads

namespace plimsoll::cuda {
namespace {

constexpr std::int64_t kRows = 16;
constexpr std::int64_t kCols = 512;  // a sub-block for each half-warp

// Three tokens of whole numbers times a matrix.
struct LinearCase {
  StoredMatrix stored = random_matrix(DType::q4_1, kRows, kCols, 1);
  AlignedBytes packed{packed_bytes(DType::q4_1, kRows, kCols)};
  std::vector<std::int8_t> quants;
  std::vector<ActivationScale> scales;
  std::vector<float> out;
  std::int32_t tokens;

  explicit LinearCase(std::int32_t count)
      : out(static_cast<std::size_t>(count * kRows), NAN), tokens(count) {
    pack_weights(stored.slice(), packed.span());
    for (std::int64_t i = 0; i < tokens * kCols; ++i) {
      quants.push_back(static_cast<std::int8_t>(i * 37 % 251 - 125));
    }
    for (std::int64_t i = 0; i < tokens * kCols; i += 32) {
      int sums[2] = {};
      for (std::int64_t k = 0; k < 32; ++k) sums[k / 16] += quants[static_cast<std::size_t>(i + k)];
      scales.push_back({.scale = 1,
                        .negative_sums = {static_cast<std::int16_t>(-sums[0]),
                                          static_cast<std::int16_t>(-sums[1])}});
    }
  }
  LinearArguments arguments() {
    return {.quants = quants.data(),
            .scales = scales.data(),
            .values = nullptr,
            .weight = reinterpret_cast<const unsigned char*>(packed.span().data()),
            .up = nullptr,
            .tokens = tokens,
            .cols = kCols,
            .segment_cols = 32,
            .row_begin = 0,
            .row_end = kRows,
            .end = LinearEnd::store,
            .out = out.data(),
            .sums = nullptr,
            .stride = kRows};
  }
  bool is_right() const {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < kRows; ++r) {
        double sum = 0, magnitude = 0;
        for (std::int64_t c = 0; c < kCols; ++c) {
          const double product = stored.at(r, c) * quants[static_cast<std::size_t>(t * kCols + c)];
          sum += product;
          magnitude += std::fabs(product);
        }
        const double got = static_cast<double>(out[static_cast<std::size_t>(t * kRows + r)]);
        if (!(std::fabs(got - sum) < 1e-5 * magnitude)) return false;
      }
    }
    return true;
  }
};

TEST(CudaLinearBarriers, OneTokenNeedsEach) {
  testing_kernels::expect_every_barrier_is_needed(
      "linear.cu", {.count = 1}, [](host_cuda::Executor& executor) -> Result<bool> {
        LinearCase test(1);
        const LinearArguments arguments = test.arguments();
        TRY(executor.run(testing_kernels::grid_of<with_barriers_linear_one_q4_1>(
            "linear_one_q4_1", {1, 1, 1}, {256, 1, 1}, &arguments)));
        return test.is_right();
      });
}

TEST(CudaLinearBarriers, FewTokensNeedEach) {
  testing_kernels::expect_every_barrier_is_needed(
      "linear_mma.cu", {.count = 1}, [](host_cuda::Executor& executor) -> Result<bool> {
        LinearCase test(3);
        const LinearArguments arguments = test.arguments();
        TRY(executor.run(testing_kernels::grid_of<with_barriers_linear_few_q4_1>(
            "linear_few_q4_1", {1, 1, 1}, {256, 1, 1}, &arguments)));
        return test.is_right();
      });
}

}  // namespace
}  // namespace plimsoll::cuda
