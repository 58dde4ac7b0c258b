#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/cpu/attention_steps.h"
#include "tests/kernels/cuda/cuda_backends.h"

namespace plimsoll {
namespace {

void expect_stored(const Shape& shape) {
  HostCuda cuda({.tokens_max = 80,
                 .cols_max = 64,
                 .rows_max = 64,
                 .context_max = kContext,
                 .heads_max = shape.heads,
                 .head_dim = shape.head_dim});
  Attention::Options options;
  options.run = [&](const AttentionCall& call) {
    cuda.backend->attention(call);
    cuda.finish();
  };
  Attention attention(shape, {70}, options);
  attention.prefill(0, 64);
  const Sequence& sequence = attention.sequence(0);
  for (const std::int64_t token : {0, 1, 31, 32, 63, 64, 69}) {
    EXPECT_LT(attention.error(sequence, token), 5e-6) << "token " << token;
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
      const std::vector<double> key = attention.rotated(sequence, token, shape.heads + head);
      const std::vector<double> value =
          attention.normed(sequence, token, shape.heads + shape.kv_heads + head);
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const double k = key[static_cast<std::size_t>(d)], v = value[static_cast<std::size_t>(d)];
        // Half a unit in the last of 11 bits, and the f32 rotation's own rounding.
        EXPECT_NEAR(attention.stored(sequence, token, head, d, false), k,
                    std::abs(k) * 0x1.01p-11 + 2e-6);
        EXPECT_NEAR(attention.stored(sequence, token, head, d, true), v,
                    std::abs(v) * 0x1p-11 + 1e-7);
      }
    }
  }
}

TEST(CudaRopeStore, RotatesNeighboursAndHalves) {
  for (const bool interleaved : {false, true}) expect_stored({4, 2, 80, 48, interleaved});
}

TEST(CudaRopeStore, AddsTheBiasAndNormsEachHeadBeforeTheRotation) {
  for (const bool norms : {false, true}) {
    expect_stored(
        {.heads = 6, .kv_heads = 2, .head_dim = 64, .rope_dim = 64, .bias = true, .norms = norms});
  }
}

}  // namespace
}  // namespace plimsoll
