// AttentionBarriers: each barrier of attention.cu, left out in turn, shows in
// values. Shapes are such that each is needed: two pages a warp, two splits, all warps at work.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/pack.h"
#include "tests/kernels/cuda/dropped_barriers.h"
#include "tests/kernels/cuda/test_kernels.h"
#include "tests/kernels/stored_matrix.h"

#undef KERNEL
#define KERNEL(name, Arguments, threads_max) \
  [[maybe_unused]] void with_barriers_##name(const Arguments& args)
#define __syncthreads() plimsoll::testing_kernels::barrier(__FILE__, __LINE__)
#define __syncwarp() plimsoll::testing_kernels::warp_barrier(__FILE__, __LINE__)
#include "kernels/cuda/attention.cu"
#undef __syncthreads
#undef __syncwarp

namespace plimsoll::cuda {
namespace {

using testing_kernels::expect_every_barrier_is_needed;
using testing_kernels::grid_of;

constexpr int kDim = 32;
constexpr int kPosition = 300;  // 10 pages: two of most warps, and a second split

// One token with two heads over 301 keys.
struct AttentionCase {
  std::vector<float> queries = random_floats(2 * kDim, 1);
  std::vector<std::uint16_t> cache;
  std::vector<std::int32_t> table;
  AttentionTile tile{.row = 0, .tokens = 1, .position = kPosition, .table = 0};
  std::vector<float> out = std::vector<float>(2 * kDim, NAN);
  std::vector<float> partial_out = std::vector<float>(4 * kDim, NAN);
  std::vector<float> partial_max = std::vector<float>(4, NAN);
  std::vector<float> partial_sum = std::vector<float>(4, NAN);

  AttentionCase() {
    const std::vector<float> values = random_floats(10 * 2 * kDim * kPageTokens, 2);
    for (const float value : values) cache.push_back(dev::float_to_half(value));
    for (int page = 0; page < 10; ++page) table.push_back(9 - page);
  }
  AttentionArguments arguments(bool is_split) {
    return {.queries = queries.data(),
            .query_stride = 2 * kDim,
            .heads = 2,
            .window = 0,
            .tiles = &tile,
            .tables = table.data(),
            .pages = {.data = reinterpret_cast<unsigned char*>(cache.data()),
                      .block_bytes = 2 * kDim * kPageTokens * 2,
                      .layer = 0,
                      .kv_heads = 1,
                      .head_dim = kDim},
            .out = out.data(),
            .out_stride = 2 * kDim,
            .partial_out = is_split ? partial_out.data() : nullptr,
            .partial_max = partial_max.data(),
            .partial_sum = partial_sum.data(),
            .splits = 2};
  }
  double stored(int key, int d, bool is_value) const {
    const int page = table[static_cast<std::size_t>(key / kPageTokens)] * 2 * kDim * kPageTokens;
    const int slot = key % kPageTokens;
    const int at = is_value ? kDim * kPageTokens + slot * kDim + d : d * kPageTokens + slot;
    return static_cast<double>(dev::half_to_float(cache[static_cast<std::size_t>(page + at)]));
  }
  double query(int head, int d) const {
    return static_cast<double>(queries[static_cast<std::size_t>(head * kDim + d)]);
  }
  // Over the keys [begin, end), with weights 2^score.
  std::vector<double> expected(int head, int begin, int end) const {
    std::vector<double> result(kDim);
    double sum = 0;
    for (int key = begin; key < end; ++key) {
      double score = 0;
      for (int d = 0; d < kDim; ++d) score += query(head, d) * stored(key, d, false);
      const double weight = std::exp2(score);
      sum += weight;
      for (int d = 0; d < kDim; ++d) {
        result[static_cast<std::size_t>(d)] += weight * stored(key, d, true);
      }
    }
    for (double& value : result) value /= sum;
    return result;
  }
  bool is_right() const {
    for (int head = 0; head < 2; ++head) {
      const std::vector<double> want = expected(head, 0, kPosition + 1);
      for (int d = 0; d < kDim; ++d) {
        const auto at = static_cast<std::size_t>(d);
        const double got = static_cast<double>(out[static_cast<std::size_t>(head * kDim + d)]);
        if (!(std::fabs(got - want[at]) < 1e-4)) return false;
      }
    }
    return true;
  }
  bool are_partials_right() const {
    for (int head = 0; head < 2; ++head) {
      for (int split = 0; split < 2; ++split) {
        const auto row = static_cast<std::size_t>(head * 2 + split);
        const std::vector<double> want =
            expected(head, split * 256, split == 0 ? 256 : kPosition + 1);
        for (std::size_t d = 0; d < kDim; ++d) {
          const double got = static_cast<double>(partial_out[row * kDim + d]) /
                             static_cast<double>(partial_sum[row]);
          if (!(std::fabs(got - want[d]) < 1e-4)) return false;
        }
      }
    }
    return true;
  }
};

unsigned shared_bytes() {
  return choose_attention({.tiles = 1, .heads = 2, .kv_heads = 1, .head_dim = kDim})
      .shape.shared_bytes;
}

TEST(CudaAttentionBarriers, AttentionOverAllSplitsNeedsEach) {
  expect_every_barrier_is_needed("attention.cu", {.count = 5, .beside_shuffles = 1},
                                 [](host_cuda::Executor& executor) -> Result<bool> {
                                   AttentionCase test;
                                   const AttentionArguments arguments = test.arguments(false);
                                   host_cuda::Grid grid = grid_of<with_barriers_attention_64>(
                                       "attention_64", {1, 1, 1}, {128, 1, 1}, &arguments);
                                   grid.shared_bytes = shared_bytes();
                                   TRY(executor.run(grid));
                                   return test.is_right();
                                 });
}

TEST(CudaAttentionBarriers, AttentionOverOneSplitNeedsEach) {
  expect_every_barrier_is_needed("attention.cu", {.count = 4, .beside_shuffles = 1},
                                 [](host_cuda::Executor& executor) -> Result<bool> {
                                   AttentionCase test;
                                   const AttentionArguments arguments = test.arguments(true);
                                   host_cuda::Grid grid = grid_of<with_barriers_attention_64>(
                                       "attention_64", {1, 1, 2}, {128, 1, 1}, &arguments);
                                   grid.shared_bytes = shared_bytes();
                                   TRY(executor.run(grid));
                                   return test.are_partials_right();
                                 });
}

}  // namespace
}  // namespace plimsoll::cuda
