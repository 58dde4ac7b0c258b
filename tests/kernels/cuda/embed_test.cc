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

class CudaEmbed : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaEmbed, testing::ValuesIn(kCudaTypes), [](const auto& tested) {
  return std::string(dtype_info(tested.param).name);
});

TEST_P(CudaEmbed, GivesRowsAsStored) {
  constexpr std::int64_t kRows = 37;
  HostCuda cuda(kLimits);
  const StoredMatrix stored = random_matrix(GetParam(), kRows, 512, 21);
  const PackedWeights weights(*cuda.backend, {&stored});
  const std::vector<std::int32_t> ids = {36, 0, 17, 17, 5};
  std::vector<float> out(ids.size() * 512, NAN);
  cuda.backend->embed(weights.matrix, ids, 3.0F,
                      f32_view(out.data(), static_cast<std::int64_t>(ids.size()), 512));
  cuda.finish();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::int64_t c = 0; c < 512; ++c) {
      const double want = 3 * stored.at(ids[i], c);
      ASSERT_NEAR(out[i * 512 + static_cast<std::size_t>(c)], want, 1e-6 * (1 + std::fabs(want)));
    }
  }
}

}  // namespace
}  // namespace plimsoll
