#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_backends.h"
#include "tests/kernels/stored_matrix.h"

namespace plimsoll {
namespace {

constexpr BackendLimits kLimits{.tokens_max = 8,
                                .cols_max = 1024,
                                .rows_max = 256,
                                .context_max = 64,
                                .heads_max = 2,
                                .head_dim = 16};

TEST(CudaCopyRows, CopiesInTheOrderAskedFor) {
  HostCuda cuda(kLimits);
  std::vector<float> in = random_floats(4 * 300, 1);
  std::vector<float> out(2 * 300, NAN);
  const std::vector<std::int32_t> rows = {3, 1};
  cuda.backend->copy_rows(f32_view(in.data(), 4, 300), rows, f32_view(out.data(), 2, 300));
  cuda.finish();
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 300, in.begin() + 900));
  EXPECT_TRUE(std::equal(out.begin() + 300, out.end(), in.begin() + 300));
}

}  // namespace
}  // namespace plimsoll
