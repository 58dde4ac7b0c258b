// Tokens that kernels draw are those of the host's sampler, for whatever options; and the same come
// out of a whole model's recorded steps.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/row_sampler.h"
#include "worker/sample/sampler.h"

namespace plimsoll {
namespace {

// To ThreadSanitizer each CUDA thread is a thread, which takes its time.
#if defined(__SANITIZE_THREAD__)
constexpr std::int64_t kRows = 2;
constexpr std::int64_t kVocabs[] = {600};
#else
constexpr std::int64_t kRows = 24;
constexpr std::int64_t kVocabs[] = {3, 512, 2600, 12'001};
#endif

// As models give them: many far from the best, some near it, ties.
std::vector<float> random_logits(std::mt19937& random, std::int64_t count, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& logit : logits) logit = static_cast<float>(std::round(normal(random) * 256) / 256);
  return logits;
}

Sampling random_sampling(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<double> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  Sampling sampling;
  sampling.temperature = one_of({0, 0.2, 0.7, 1, 1.7, 9});
  sampling.top_p = one_of({1, 1, 0.95, 0.5, 0});
  sampling.top_k = static_cast<std::int64_t>(one_of({0, 0, 1, 40, 600, 1e6}));
  sampling.min_p = one_of({0, 0, 0.02, 0.3});
  sampling.seed = random();
  return sampling;
}

TEST(DeviceSampling, EveryTokenIsTheHostsOrLeftToIt) {
  const auto runtime = cuda::make_host_runtime({.memory = 8 * kMiB, .seed = 2});
  cuda::RowSampler on_device;
  ASSERT_TRUE(on_device.start(*runtime, kRows));
  auto* scratch = runtime->allocate(kRows * cuda::RowSampler::kBytesARow, "scratch")->data();
  std::mt19937 random(17);
  std::int64_t left = 0;
  for (const std::int64_t vocab : kVocabs) {
    for (const double spread : {0.5, 3.0}) {
      const std::vector<float> logits = random_logits(random, kRows * vocab, spread);
      auto* there =
          reinterpret_cast<float*>(runtime->allocate(kRows * vocab * 4, "logits")->data());
      runtime->copy_in(there, logits.data(), logits.size() * sizeof(float));
      std::vector<Sampling> sampling;
      std::vector<cuda::RowSample> rows;
      for (std::int64_t row = 0; row < kRows; ++row) {
        sampling.push_back(random_sampling(random));
        rows.push_back(row_sample(sampling.back(), row, vocab));
      }
      on_device.sample(*runtime, f32_view(there, kRows, vocab), rows, scratch);
      ASSERT_TRUE(runtime->synchronize());
      Sampler sampler(vocab);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const std::int32_t token = on_device.tokens()[at];
        ASSERT_NE(token, cuda::kUnsoundLogits);
        left += token == cuda::kSampleOnHost ? 1 : 0;
        if (token == cuda::kSampleOnHost) continue;
        const auto want =
            sampler.sample(std::span(logits).subspan(at * static_cast<std::size_t>(vocab),
                                                     static_cast<std::size_t>(vocab)),
                           {.sampling = sampling[at], .output = {}, .position = row});
        ASSERT_TRUE(want);
        EXPECT_EQ(token, *want) << "of " << vocab << ": temperature " << sampling[at].temperature
                                << " top_p " << sampling[at].top_p << " top_k "
                                << sampling[at].top_k << " min_p " << sampling[at].min_p;
      }
    }
  }
  EXPECT_LE(left, 2 * kRows * std::ssize(kVocabs) / 4) << "that are left to the host";
}

}  // namespace
}  // namespace plimsoll
