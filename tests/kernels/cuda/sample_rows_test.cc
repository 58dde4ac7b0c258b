// SampleRows against plain loops over sorted columns, and without each of its barriers. That its
// tokens are the host sampler's is in tests/worker/sample/device_sampling_test.cc.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
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
#include "kernels/cuda/sample_rows.cu"
#undef __syncthreads

namespace plimsoll::cuda {
namespace {

constexpr std::int32_t kVocab = 1300;  // three chunks, the last one short
constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowSample greedy() {
  return {.kind = RowSample::greedy, .top_k = 0, .scale = 1, .min_p = 0, .top_p = 1, .uniform = 0};
}
RowSample some(std::int32_t top_k, double top_p, double uniform) {
  return {.kind = RowSample::some,
          .top_k = top_k,
          .scale = 1,
          .min_p = 0,
          .top_p = top_p,
          .uniform = uniform};
}
RowSample all(double uniform) {
  return {
      .kind = RowSample::all, .top_k = 0, .scale = 1, .min_p = 0, .top_p = 1, .uniform = uniform};
}

// A row of logits for each; rows are wider than the vocabulary.
struct Case {
  static constexpr std::int64_t kStride = kVocab + 12;
  explicit Case(std::vector<RowSample> how)
      : rows(std::move(how)),
        logits(random_floats(std::ssize(rows) * kStride, 3)),
        tokens(rows.size(), -9) {
    for (float& logit : logits) logit *= 6;
    arguments = {.logits = logits.data(),
                 .stride = kStride,
                 .vocab = kVocab,
                 .rows = rows.data(),
                 .tokens = tokens.data()};
  }
  const float* row(std::size_t index) const { return logits.data() + index * kStride; }
  float& at(std::size_t index, std::int64_t col) {
    return logits[index * kStride + static_cast<std::size_t>(col)];
  }
  LaunchShape shape() const {
    return {.grid = {static_cast<unsigned>(rows.size())}, .block = {256}};
  }
  // Columns, best first.
  std::vector<std::int32_t> order(std::size_t index) const {
    std::vector<std::int32_t> ids(kVocab);
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, [&](auto a, auto b) { return row(index)[a] > row(index)[b]; });
    return ids;
  }
  // By sums in double; nothing lies so near a bound that their order counts.
  std::int32_t expected(std::size_t index) const {
    const RowSample& how = rows[index];
    const std::vector<std::int32_t> ids = order(index);
    const auto weight = [&](std::int32_t id) {
      return std::exp(static_cast<double>(row(index)[id] - row(index)[ids[0]]));
    };
    if (how.kind == RowSample::greedy) return ids[0];
    if (how.kind == RowSample::all) {
      double mass = 0;
      for (std::int32_t id = 0; id < kVocab; ++id) mass += weight(id);
      double sum = 0;
      std::int32_t id = 0;
      while ((sum += weight(id)) <= how.uniform * mass) ++id;
      return id;
    }
    const std::size_t most = how.top_k > 0 ? static_cast<std::size_t>(how.top_k) : ids.size();
    double mass = 0;
    for (std::size_t i = 0; i < most; ++i) mass += weight(ids[i]);
    std::size_t kept = 0;
    double kept_mass = 0;
    while (kept < most && (kept == 0 || kept_mass < how.top_p * mass))
      kept_mass += weight(ids[kept++]);
    double sum = 0;
    std::size_t at = 0;
    while (at + 1 < kept && (sum += weight(ids[at])) <= how.uniform * kept_mass) ++at;
    return ids[at];
  }
  bool is_right() const {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (tokens[i] != expected(i)) return false;
    }
    return true;
  }

  std::vector<RowSample> rows;
  std::vector<float> logits;
  std::vector<std::int32_t> tokens;
  SampleArguments arguments{};
};

TEST(CudaSampleRows, DrawsWhatSortedColumnsGive) {
  std::vector<RowSample> rows = {greedy()};
#if defined(__SANITIZE_THREAD__)  // takes its time
  constexpr double kUniforms[] = {0.77};
#else
  constexpr double kUniforms[] = {0.0, 0.31, 0.77, 0.999};
#endif
  for (const double uniform : kUniforms) {
    rows.push_back(all(uniform));
    rows.push_back(some(0, 0.9, uniform));
    rows.push_back(some(40, 1, uniform));
    rows.push_back(some(7, 0.6, uniform));
  }
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t kSeeds[] = {2};
#else
  constexpr std::uint64_t kSeeds[] = {0, 2, 3};
#endif
  for (const std::uint64_t seed : kSeeds) {
    Case test(rows);
    host_cuda::Executor executor({.seed = seed});
    const Status ran = executor.run(host_grid(Kernel::sample_rows, test.shape(), &test.arguments));
    ASSERT_TRUE(ran) << ran.error().message;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(test.tokens[i], test.expected(i)) << "row " << i << ", seed " << seed;
    }
  }
}

TEST(CudaSampleRows, SaysWhereLogitsAreUnsoundAndWhereMoreIsLeftThanItSorts) {
  Case test({greedy(), all(0.5), greedy(), some(1100, 1, 0.5), some(0, 0.9999, 0.5), greedy()});
  test.at(0, 1299) = NAN;
  test.at(1, 700) = kInfinity;
  for (std::int64_t col = 0; col < kVocab; ++col) test.at(2, col) = -kInfinity;
  for (std::int64_t col = 0; col < kVocab; ++col) test.at(4, col) = 1;  // all are left
  for (std::int64_t col = 0; col < kVocab; ++col) test.at(5, col) = col % 500 == 321 ? 2.0F : -1.0F;
  host_cuda::Executor executor({.seed = 2});
  ASSERT_TRUE(executor.run(host_grid(Kernel::sample_rows, test.shape(), &test.arguments)));
  EXPECT_EQ(test.tokens, (std::vector<std::int32_t>{kUnsoundLogits, kUnsoundLogits, kUnsoundLogits,
                                                    kSampleOnHost, kSampleOnHost, 321}));
}

TEST(CudaSampleRows, NeedsEveryBarrier) {
  testing_kernels::expect_every_barrier_is_needed(
      "sample_rows.cu", {.count = 8}, [](host_cuda::Executor& executor) -> Result<bool> {
        Case test({greedy(), all(0.31), all(0.77), some(0, 0.9, 0.5), some(300, 1, 0.93),
                   some(900, 1, 0.99)});
        TRY(executor.run(testing_kernels::grid_of<with_barriers_sample_rows>(
            "sample_rows", {static_cast<unsigned>(test.rows.size()), 1, 1}, {256, 1, 1},
            &test.arguments)));
        return test.is_right();
      });
}

}  // namespace
}  // namespace plimsoll::cuda
