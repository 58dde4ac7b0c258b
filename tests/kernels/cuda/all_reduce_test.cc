// All-reduce over peers' memory, kernel by kernel: ranks are launches that run at the same time.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/host_runtime.h"
#include "kernels/cuda/ipc_layout.cuh"
#include "tests/kernels/cuda/dropped_barriers.h"
#include "tests/kernels/cuda/test_kernels.h"
#include "tests/kernels/stored_matrix.h"

// The same kernels, with barriers that can be left out.
#undef KERNEL
#define KERNEL(name, Arguments, threads_max) void with_barriers_##name(const Arguments& args)
#define __syncthreads() plimsoll::testing_kernels::barrier(__FILE__, __LINE__)
#include "kernels/cuda/all_reduce.cu"
#undef __syncthreads

namespace plimsoll::cuda {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr Kernel kKernels[] = {Kernel::all_reduce_one_shot, Kernel::all_reduce_two_shot,
                               Kernel::all_reduce_staged};
#if defined(__SANITIZE_THREAD__)
constexpr std::int64_t kSeeds = 2;
constexpr int kRanksTested[] = {2, 3};
#else
constexpr std::int64_t kSeeds = 6;
constexpr int kRanksTested[] = {2, 3, 4, 8};
#endif

class Ranks {
 public:
  Ranks(int ranks, std::int64_t pairs)
      : pairs_(pairs),
        half_bytes_(round_up(ranks * (pairs + ranks) * 24, 128)),
        buffers_(static_cast<std::size_t>(ranks)),
        states_(buffers_.size()),
        faults_(buffers_.size()),
        partials_(buffers_.size()),
        sums_(buffers_.size()),
        arguments_(buffers_.size()) {
    for (int r = 0; r < ranks; ++r) {
      buffers_[index(r)].resize(static_cast<std::size_t>(ipc_buffer_bytes(half_bytes_)) / 128);
      for (const float value : random_floats(2 * pairs, static_cast<std::uint32_t>(r) + 1)) {
        partials_[index(r)].push_back(static_cast<double>(value) / 3);
      }
      sums_[index(r)] = random_floats(2 * pairs, 99);
    }
    for (int r = 0; r < ranks; ++r) {
      AllReduceArguments& args = arguments_[index(r)];
      args.group.rank = r;
      args.group.ranks = ranks;
      for (int p = 0; p < ranks; ++p) {
        args.group.buffers[p] = reinterpret_cast<unsigned char*>(buffers_[index(p)].data());
      }
      args.group.half_bytes = half_bytes_;
      args.group.state = &states_[index(r)];
      args.group.abort_word = &abort_word_;
      args.group.fault = &faults_[index(r)];
      args.group.deadline_ns = 20 * kSecond;
      args.partial = partials_[index(r)].data();
      args.accumulate = sums_[index(r)].data();
      args.pairs = pairs;
    }
  }

  AllReduceArguments& arguments(int rank) { return arguments_[index(rank)]; }
  std::uint32_t& abort_word() { return abort_word_; }
  IpcFault fault(int rank) const { return IpcFault::of(faults_[index(rank)]); }
  const std::vector<float>& sums(int rank) const { return sums_[index(rank)]; }

  std::vector<host_cuda::Grid> grids(Kernel kernel, const LaunchShape& shape) {
    std::vector<host_cuda::Grid> all;
    for (const AllReduceArguments& args : arguments_) {
      all.push_back(host_grid(kernel, shape, &args));
    }
    return all;
  }

  // Adds once more; the ranks' sums are then what they shall be.
  Result<bool> add(host_cuda::Executor& executor, std::span<const host_cuda::Grid> grids) {
    std::vector<float> want = sums_[0];
    for (std::size_t i = 0; i < want.size(); ++i) {
      double sum = partials_[0][i];
      for (std::size_t r = 1; r < partials_.size(); ++r) sum += partials_[r][i];
      want[i] = static_cast<float>(static_cast<double>(want[i]) + sum);
    }
    TRY(executor.run(grids));
    for (const std::vector<float>& got : sums_) {
      if (std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) != 0) return false;
    }
    return true;
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::int64_t pairs_;
  std::int64_t half_bytes_;
  std::uint32_t abort_word_ = 0;
  std::vector<std::vector<IpcFlag>> buffers_;
  std::vector<IpcState> states_;
  std::vector<std::uint64_t> faults_;
  std::vector<std::vector<double>> partials_;
  std::vector<std::vector<float>> sums_;
  std::vector<AllReduceArguments> arguments_;
};

TEST(CudaAllReduce, EveryRankHasTheSumInRankOrderCallAfterCallOfAnyKind) {
  for (const int ranks : kRanksTested) {
    for (std::int64_t seed = 0; seed < kSeeds; ++seed) {
      host_cuda::Executor executor({.seed = static_cast<std::uint64_t>(seed)});
      Ranks group(ranks, 70 + seed);  // more than threads, and no multiple of ranks or blocks
      for (std::size_t call = 0; call < 7; ++call) {
        const auto grids = group.grids(
            kKernels[call % 3], {.grid = {1 + static_cast<unsigned>(call) % 2}, .block = {32}});
        const auto right = group.add(executor, grids);
        ASSERT_TRUE(right) << right.error().message;
        ASSERT_TRUE(*right) << ranks << " ranks, seed " << seed << ", call " << call;
      }
    }
  }
}

TEST(CudaAllReduce, SumsFewerPairsThanThereAreRanksAndBlocks) {
  for (const Kernel kernel : kKernels) {
    host_cuda::Executor executor({.seed = 3});
    Ranks group(3, 2);
    const auto right = group.add(executor, group.grids(kernel, {.grid = {3}, .block = {32}}));
    ASSERT_TRUE(right) << right.error().message;
    EXPECT_TRUE(*right) << kernel_name(kernel);
  }
}

TEST(CudaAllReduce, ARankWhosePeerNeverComesSaysWhoAndDoesNothingMore) {
  for (const Kernel kernel : kKernels) {
    host_cuda::Executor executor({.seed = 2});
    Ranks group(2, 8);
    group.arguments(1).group.deadline_ns = 5'000'000;
    const std::vector<float> before = group.sums(1);
    const auto grids = group.grids(kernel, {.grid = {2}, .block = {32}});
    ASSERT_TRUE(executor.run(grids[1]));
    EXPECT_EQ(group.fault(1).kind, IpcFault::late);
    EXPECT_EQ(group.fault(1).peer, 0);
    EXPECT_EQ(group.fault(1).epoch, 1U);
    group.arguments(1).group.deadline_ns = 100 * kSecond;
    ASSERT_TRUE(executor.run(grids[1]));  // at once
    EXPECT_EQ(group.sums(1), before);
  }
}

TEST(CudaAllReduce, AnAbortOfTheHostEndsTheWait) {
  for (const Kernel kernel : kKernels) {
    host_cuda::Executor executor({.seed = 2});
    Ranks group(2, 8);
    group.abort_word() = 1;
    ASSERT_TRUE(executor.run(group.grids(kernel, {.grid = {1}, .block = {32}})[0]));
    EXPECT_EQ(group.fault(0).kind, IpcFault::aborted);
    EXPECT_EQ(group.fault(0).peer, 1);
  }
}

// What a norm of a rank's sums writes.
struct Normed {
  explicit Normed(std::int64_t tokens, std::int64_t cols)
      : weight(random_floats(cols, 5)),
        quants(static_cast<std::size_t>(tokens * cols)),
        scales(quants.size() / kSubBlockCols) {}
  NormArguments arguments(const float* in, std::int64_t cols) {
    return {.in = in,
            .in_stride = cols,
            .weight = weight.data(),
            .eps = 1e-5F,
            .cols = static_cast<std::int32_t>(cols),
            .quants = quants.data(),
            .scales = scales.data(),
            .values = nullptr,
            .added = nullptr,
            .added_stride = 0,
            .cleared = nullptr};
  }
  bool operator==(const Normed& other) const {
    return quants == other.quants && std::memcmp(scales.data(), other.scales.data(),
                                                 scales.size() * sizeof(ActivationScale)) == 0;
  }

  std::vector<float> weight;
  std::vector<std::int8_t> quants;
  std::vector<ActivationScale> scales;
};

TEST(CudaAllReduce, WithTheNormItHasTheBitsOfASumAndThenANorm) {
  constexpr std::int64_t kTokens = 5;
  constexpr std::int64_t kCols = 160;
  for (const int ranks : kRanksTested) {
    host_cuda::Executor executor({.seed = 4});
    Ranks apart(ranks, kTokens * kCols / 2);
    Ranks fused(ranks, kTokens * kCols / 2);
    const auto right =
        apart.add(executor, apart.grids(Kernel::all_reduce_one_shot, {.grid = {2}, .block = {64}}));
    ASSERT_TRUE(right && *right);
    std::vector<Normed> normed(static_cast<std::size_t>(ranks), Normed(kTokens, kCols));
    std::vector<AllReduceNormArguments> arguments(normed.size());
    std::vector<host_cuda::Grid> grids;
    for (int r = 0; r < ranks; ++r) {
      const auto at = static_cast<std::size_t>(r);
      arguments[at] = {.sum = fused.arguments(r),
                       .tokens = kTokens,
                       .norm = normed[at].arguments(fused.arguments(r).accumulate, kCols)};
      grids.push_back(
          host_grid(Kernel::all_reduce_norm, {.grid = {3}, .block = {256}}, &arguments[at]));
    }
    const auto summed = fused.add(executor, grids);
    ASSERT_TRUE(summed) << summed.error().message;
    EXPECT_TRUE(*summed) << ranks << " ranks";
    Normed want(kTokens, kCols);
    const NormArguments norm = want.arguments(apart.sums(0).data(), kCols);
    ASSERT_TRUE(
        executor.run(host_grid(Kernel::rms_norm, {.grid = {kTokens}, .block = {256}}, &norm)));
    for (int r = 0; r < ranks; ++r) {
      EXPECT_TRUE(normed[static_cast<std::size_t>(r)] == want) << "rank " << r << " of " << ranks;
    }
  }
}

TEST(CudaAllReduce, NeedsItsBarriers) {
  // Two of five show only where a wait fails, or between launches, which a stream keeps apart.
  testing_kernels::expect_every_barrier_is_needed(
      "all_reduce.cu", {.count = 5, .beside_shuffles = 2},
      [](host_cuda::Executor& executor) -> Result<bool> {
        Ranks group(2, 90);
        const auto grid = [&](int rank) {
          return testing_kernels::grid_of<with_barriers_all_reduce_two_shot>(
              "all_reduce", {1, 1, 1}, {64, 1, 1}, &group.arguments(rank));
        };
        const host_cuda::Grid grids[] = {grid(0), grid(1)};
        bool right = true;
        for (int call = 0; call < 3; ++call) right = TRY(group.add(executor, grids)) && right;
        return right;
      });
}

TEST(CudaAllReduce, AHalfHoldsWhatTheLayoutSays) {
  EXPECT_EQ(pairs_max(ReduceKind::one_shot, 2, 1024), 32);
  EXPECT_EQ(pairs_max(ReduceKind::two_shot, 4, 960), 40);
  EXPECT_EQ(ipc_buffer_bytes(128), 2 * 8 * 16 * 128 + 256);
  const IpcFault fault{.kind = IpcFault::late, .phase = 1, .peer = 5, .epoch = 0x1'2345'6789};
  EXPECT_EQ(IpcFault::of(fault.word()).peer, 5);
  EXPECT_EQ(IpcFault::of(fault.word()).phase, 1);
  EXPECT_EQ(IpcFault::of(fault.word()).epoch, 0x2345'6789U);
}

}  // namespace
}  // namespace plimsoll::cuda
