#include "tools/gpu_check/bench_backend.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"

namespace plimsoll {
namespace {

void expect_round_trip(Backend& backend) {
  BenchBackend on(backend);
  ASSERT_TRUE(on.set_limits({.tokens_max = 4,
                             .cols_max = 64,
                             .rows_max = 32,
                             .context_max = 32,
                             .heads_max = 1,
                             .head_dim = 64}));
  std::mt19937_64 random(1);
  const std::vector<float> values = random_floats(128, 1, random);
  const auto put = on.put(values);
  ASSERT_TRUE(put);
  const auto got = on.get(f32_view(const_cast<float*>(*put), 2, 64));
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, values);
  const auto zeroed = on.take_f32(2, 64);
  ASSERT_TRUE(zeroed);
  EXPECT_EQ(*on.get(*zeroed), std::vector<float>(128));
}

TEST(BenchBackend, WhatIsPutIsGotOnEitherBackend) {
  const auto cpu =
      make_cpu_backend({.threads = 1, .cpus = {}, .spin = false, .path = CpuPath::scalar});
  ASSERT_TRUE(cpu);
  expect_round_trip(**cpu);
  expect_round_trip(*make_cuda_backend(cuda::make_host_runtime({.memory = 8 * kMiB, .seed = 2})));
}

}  // namespace
}  // namespace plimsoll
