// AddSums against a double loop.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/host_runtime.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll::cuda {
namespace {

TEST(CudaAddSums, AddsAndRoundsOnce) {
  constexpr std::int64_t kCount = 700;
  std::vector<double> sums;
  for (const float value : random_floats(kCount, 3)) sums.push_back(static_cast<double>(value) / 3);
  std::vector<float> accumulate = random_floats(kCount, 4);
  std::vector<float> want = accumulate;
  for (std::size_t i = 0; i < want.size(); ++i) {
    want[i] = static_cast<float>(static_cast<double>(want[i]) + sums[i]);
  }
  const AddSumsArguments arguments{
      .sums = sums.data(), .accumulate = accumulate.data(), .count = kCount};
  host_cuda::Executor executor({.seed = 2});
  ASSERT_TRUE(executor.run(host_grid(Kernel::add_sums, {.grid = {2}, .block = {256}}, &arguments)));
  EXPECT_EQ(accumulate, want);
}

}  // namespace
}  // namespace plimsoll::cuda
