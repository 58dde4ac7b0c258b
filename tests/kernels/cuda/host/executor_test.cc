#include "kernels/cuda/host/executor.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/test_kernels.h"

namespace plimsoll::host_cuda {
namespace {

using testing_kernels::grid_of;

constexpr std::uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5, 6, 7};

struct Numbers {
  const int* in;
  int* out;
  int count;
};

// out[block] = the sum of the block's inputs, by a tree in shared memory.
void block_sum(const Numbers& args) {
  SHARED(int, sums, [128]);
  const unsigned thread = threadIdx.x;
  sums[thread] = args.in[blockIdx.x * blockDim.x + thread];
  for (unsigned step = 64; step > 0; step /= 2) {
    __syncthreads();
    if (thread < step) sums[thread] += sums[thread + step];
  }
  if (thread == 0) args.out[blockIdx.x] = sums[0];
}

std::vector<int> counted(int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Executor, ABarrierLetsABlockAddUpUnderEveryOrder) {
  const std::vector<int> in = counted(3 * 128);
  for (const std::uint64_t seed : kSeeds) {
    std::vector<int> out(3, -1);
    Executor executor({.seed = seed});
    const Numbers args{in.data(), out.data(), 0};
    ASSERT_TRUE(executor.run(grid_of<block_sum>("block_sum", {3}, {128}, &args)));
    EXPECT_EQ(out, (std::vector<int>{8256, 24640, 41024})) << "seed " << seed;
    EXPECT_EQ(executor.counters().threads, 3 * 128);
    EXPECT_EQ(executor.counters().barriers, 3 * 128 * 7);
  }
}

#if !defined(__SANITIZE_THREAD__)  // which would report the race, as it should
// The same without the barrier between steps.
void block_sum_without_barrier(const Numbers& args) {
  SHARED(int, sums, [128]);
  const unsigned thread = threadIdx.x;
  sums[thread] = args.in[blockIdx.x * blockDim.x + thread];
  for (unsigned step = 64; step > 0; step /= 2) {
    if (thread < step) sums[thread] += sums[thread + step];
  }
  if (thread == 0) args.out[blockIdx.x] = sums[0];
}

TEST(Executor, AMissingBarrierShowsInValuesUnderEveryRandomOrder) {
  const std::vector<int> in = counted(128);
  for (std::uint64_t seed = 2; seed < 12; ++seed) {
    int out = -1;
    Executor executor({.seed = seed});
    const Numbers args{in.data(), &out, 0};
    ASSERT_TRUE(executor.run(grid_of<block_sum_without_barrier>("broken", {1}, {128}, &args)));
    EXPECT_NE(out, 8256) << "seed " << seed;
  }
}
#endif

void exchange(const Numbers& args) {
  const unsigned thread = threadIdx.x;
  const int value = args.in[thread];
  const int swapped = __shfl_xor_sync(0xffffffffU, value, 1);
  const int of_three = __shfl_sync(0xffffffffU, value, 3);
  const unsigned odd = __ballot_sync(0xffffffffU, value % 2 != 0);
  args.out[thread] = swapped * 10000 + of_three * 100 + (odd == 0x55555555U ? 7 : 0);
}

TEST(Executor, LanesOfAWarpExchangeValuesAndVotes) {
  const std::vector<int> in = counted(64);
  for (const std::uint64_t seed : kSeeds) {
    std::vector<int> out(64);
    Executor executor({.seed = seed});
    const Numbers args{in.data(), out.data(), 0};
    ASSERT_TRUE(executor.run(grid_of<exchange>("exchange", {1}, {64}, &args)));
    for (int i = 0; i < 64; ++i) {
      const int neighbour = (i ^ 1) + 1;
      EXPECT_EQ(out[static_cast<std::size_t>(i)], neighbour * 10000 + (i / 32 * 32 + 4) * 100 + 7);
    }
  }
}

// Two blocks that wait for each other: each sets its flag and looks at the other's.
struct Flags {
  std::uint32_t* flags;
};
void meet_other_block(const Flags& args) {
  if (threadIdx.x != 0) return;
  __atomic_store_n(&args.flags[blockIdx.x], 1U, __ATOMIC_RELEASE);
  while (__atomic_load_n(&args.flags[1 - blockIdx.x], __ATOMIC_ACQUIRE) == 0) {
    spin_pause({__FILE__, __LINE__, "spin"});
  }
}

TEST(Executor, ResidentBlocksCanWaitForEachOther) {
  for (const std::uint64_t seed : kSeeds) {
    std::uint32_t flags[2] = {};
    Executor executor({.seed = seed, .resident = 2});
    const Flags args{flags};
    EXPECT_TRUE(executor.run(grid_of<meet_other_block>("meet", {2}, {32}, &args)));
  }
}

TEST(Executor, GridsRunAtTheSameTime) {
  std::uint32_t flags[2] = {};
  const Flags args{flags};
  const Flags swapped{flags};
  Executor executor({.seed = 3, .resident = 2});
  const Grid grids[] = {grid_of<meet_other_block>("first", {2}, {32}, &args),
                        grid_of<meet_other_block>("second", {2}, {32}, &swapped)};
  EXPECT_TRUE(executor.run(grids));
  EXPECT_EQ(flags[0] + flags[1], 2U);
}

#if !defined(__SANITIZE_THREAD__)  // a launch that ends in an error leaves its threads unordered

std::string failure_of(const Grid& grid, std::uint64_t seed = 2) {
  Executor executor({.seed = seed, .resident = 1, .spin_deadline = milliseconds(20)});
  const Status status = executor.run(grid);
  if (status) return "no failure";
  // It can be used again.
  const std::vector<int> in = counted(128);
  int out = 0;
  const Numbers args{in.data(), &out, 0};
  EXPECT_TRUE(executor.run(grid_of<block_sum>("block_sum", {1}, {128}, &args)));
  EXPECT_EQ(out, 8256);
  return status.error().message;
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

void leaves_early(const Numbers& args) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  args.out[threadIdx.x] = 1;
}

TEST(Executor, NamesWhoIsMissingAtABarrier) {
  int out[64] = {};
  const Numbers args{nullptr, out, 0};
  for (const std::uint64_t seed : kSeeds) {
    const std::string message =
        failure_of(grid_of<leaves_early>("leaves_early", {1}, {64}, &args), seed);
    expect_parts(message, {"leaves_early", "__syncthreads", "executor_test.cc:", "returned"});
  }
}

void two_barriers(const Numbers&) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(Executor, RefusesThreadsOfABlockAtDifferentBarriers) {
  const Numbers args{};
  expect_parts(failure_of(grid_of<two_barriers>("two_barriers", {1}, {64}, &args)),
               {"two_barriers", "different barriers", "thread ("});
}

void half_a_warp(const Numbers& args) {
  if (threadIdx.x < 16) args.out[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1, 1);
}

TEST(Executor, RefusesAWarpOperationOfLanesThatAreGone) {
  int out[32] = {};
  const Numbers args{nullptr, out, 0};
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::string message =
        failure_of(grid_of<half_a_warp>("half_a_warp", {1}, {32}, &args), seed);
    expect_parts(message, {"half_a_warp", "__shfl_xor_sync", "returned"});
  }
}

void spins_alone(const Flags& args) {
  while (__atomic_load_n(args.flags, __ATOMIC_ACQUIRE) == 0) {
    spin_pause({__FILE__, __LINE__, "spin"});
  }
}

TEST(Executor, GivesUpOnThreadsThatOnlySpin) {
  std::uint32_t flag = 0;
  const Flags args{&flag};
  expect_parts(failure_of(grid_of<spins_alone>("spins_alone", {1}, {32}, &args)),
               {"spins_alone", "nothing but spin", "executor_test.cc:"});
}

TEST(Executor, RefusesBlocksThatNoDeviceHas) {
  const Numbers args{};
  expect_parts(failure_of(grid_of<two_barriers>("two_barriers", {1}, {1025}, &args)),
               {"1025 threads", "1 to 1024"});
}

#if !defined(__SANITIZE_ADDRESS__)  // which stops at the write itself
void writes_beside(const Numbers&) {
  DYNAMIC_SHARED(raw);
  raw[20 + threadIdx.x] = 1;
}

TEST(Executor, FindsWritesBesideDynamicSharedMemory) {
  const Numbers args{};
  Grid grid = grid_of<writes_beside>("writes_beside", {1}, {1}, &args);
  grid.shared_bytes = 20;
  expect_parts(failure_of(grid), {"writes_beside", "20 bytes"});
}
#endif
#endif

void reads_unset(const Numbers& args) {
  SHARED(float, values, [32]);
  args.out[blockIdx.x * 32 + threadIdx.x] = std::isnan(values[threadIdx.x]) ? 1 : 0;
}

TEST(Executor, SharedMemoryBeginsAsNaNInEveryBlock) {
  int out[4 * 32] = {};
  const Numbers args{nullptr, out, 0};
  Executor executor({});
  ASSERT_TRUE(executor.run(grid_of<reads_unset>("reads_unset", {4}, {32}, &args)));
  for (const int is_nan : out) EXPECT_EQ(is_nan, 1);
}

void records_order(const Numbers& args) {
  if (threadIdx.x == 0) args.out[blockIdx.x] = atomicAdd(&args.out[8], 1);
}

TEST(Executor, TheSeedDecidesTheOrderOfBlocks) {
  const auto order = [](std::uint64_t seed) {
    std::vector<int> out(9);
    const Numbers args{nullptr, out.data(), 0};
    Executor executor({.seed = seed});
    EXPECT_TRUE(executor.run(grid_of<records_order>("records_order", {8}, {1}, &args)));
    out.pop_back();
    return out;
  };
  EXPECT_EQ(order(0), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(order(1), (std::vector<int>{7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
  EXPECT_NE(order(5), order(0));
}

struct Product {
  const std::int8_t* a;  // [16, 32]
  const std::int8_t* b;  // [8, 32]
  int* d;                // [16, 8]
  int* halves;           // [16, 8], of the first 16 columns
};

unsigned word(const std::int8_t* at) {
  unsigned value;
  std::memcpy(&value, at, 4);
  return value;
}

void multiply(const Product& args) {
  const int lane = static_cast<int>(threadIdx.x);
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int8_t* upper = args.a + g * 32 + 4 * t;
  const std::int8_t* lower = upper + 8 * 32;
  const std::int8_t* column = args.b + g * 32 + 4 * t;
  int d[4] = {};
  int half[4] = {};
  dev::mma_s8(d, {word(upper), word(lower), word(upper + 16), word(lower + 16)},
              {word(column), word(column + 16)});
  dev::mma_s8_half(half, {word(upper), word(lower)}, word(column));
  for (int i = 0; i < 4; ++i) {
    const int at = (g + i / 2 * 8) * 8 + 2 * t + i % 2;
    args.d[at] = d[i];
    args.halves[at] = half[i];
  }
}

TEST(Executor, TheTwinOfATensorCoreMultipliesMatrices) {
  std::int8_t a[16 * 32];
  std::int8_t b[8 * 32];
  for (int i = 0; i < 16 * 32; ++i) a[i] = static_cast<std::int8_t>(i * 37 % 251 - 125);
  for (int i = 0; i < 8 * 32; ++i) b[i] = static_cast<std::int8_t>(i * 91 % 241 - 120);
  int d[16 * 8];
  int halves[16 * 8];
  const Product args{a, b, d, halves};
  Executor executor({.seed = 2});
  ASSERT_TRUE(executor.run(grid_of<multiply>("multiply", {1}, {32}, &args)));
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      int sum = 0;
      int half = 0;
      for (int k = 0; k < 32; ++k) {
        sum += a[row * 32 + k] * b[col * 32 + k];
        if (k < 16) half += a[row * 32 + k] * b[col * 32 + k];
      }
      EXPECT_EQ(d[row * 8 + col], sum);
      EXPECT_EQ(halves[row * 8 + col], half);
    }
  }
}

}  // namespace
}  // namespace plimsoll::host_cuda
