#include "kernels/cuda/row_sampler.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_runtime.h"

namespace plimsoll::cuda {
namespace {

TEST(RowSampler, TokensOfTheFirstRowsComeBackOnceTheStreamWasWaitedFor) {
  const auto runtime = make_host_runtime({.memory = kMiB, .seed = 2});
  RowSampler sampler;
  ASSERT_TRUE(sampler.start(*runtime, 4));
  auto* scratch = runtime->allocate(4 * RowSampler::kBytesARow, "scratch")->data();
  std::vector<float> logits(3 * 8);
  logits[5] = 1;
  logits[8 + 2] = 2;
  const RowSample greedy{
      .kind = RowSample::greedy, .top_k = 0, .scale = 1, .min_p = 0, .top_p = 1, .uniform = 0};
  const std::vector<RowSample> rows(2, greedy);
  sampler.sample(*runtime, f32_view(logits.data(), 3, 8), rows, scratch);
  ASSERT_TRUE(runtime->synchronize());
  EXPECT_EQ(std::vector(sampler.tokens().begin(), sampler.tokens().end()),
            (std::vector<std::int32_t>{5, 2}));
}

TEST(RowSampler, OnlyTheCudaBackendHasOneAndForAsManyColumnsAsABlockAddsUp) {
  const auto on_cuda = make_cuda_backend(make_host_runtime({.memory = 0}));
  RowSampling* const sampling = row_sampling(*on_cuda);
  ASSERT_NE(sampling, nullptr);
  EXPECT_TRUE(sampling->can_sample(524'288));
  EXPECT_FALSE(sampling->can_sample(524'289));
  const auto on_cpu = make_cpu_backend({});
  ASSERT_TRUE(on_cpu);
  EXPECT_EQ(row_sampling(**on_cpu), nullptr);
}

}  // namespace
}  // namespace plimsoll::cuda
