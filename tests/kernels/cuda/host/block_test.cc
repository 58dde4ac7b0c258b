#include "kernels/cuda/host/block.h"

#include <gtest/gtest.h>

namespace plimsoll::host_cuda {
namespace {

TEST(Block, NumbersItsThreadsByXThenYThenZ) {
  const Grid grid{.kernel = "k", .grid = {4, 2}, .block = {8, 4, 2}};
  Block block;
  ASSERT_TRUE(block.begin(grid, {3, 1, 0}));
  ASSERT_EQ(block.threads.size(), 64U);
  ASSERT_EQ(block.warps.size(), 2U);
  const Thread& thread = block.threads[8 * 4 + 8 * 2 + 5];
  EXPECT_EQ(thread.ids.thread.x, 5U);
  EXPECT_EQ(thread.ids.thread.y, 2U);
  EXPECT_EQ(thread.ids.thread.z, 1U);
  EXPECT_EQ(thread.lane, (8 * 4 + 8 * 2 + 5) % 32U);
  EXPECT_EQ(thread_name(thread), "thread (5,2,1) of block (3,1,0)");
}

TEST(Block, AShortLastWarpHasOnlyTheLanesThatThereAre) {
  const Grid grid{.kernel = "k", .grid = {1}, .block = {40}};
  Block block;
  ASSERT_TRUE(block.begin(grid, {0, 0, 0}));
  EXPECT_EQ(block.warps[0].live, 0xffffffffU);
  EXPECT_EQ(block.warps[1].live, 0xffU);
  EXPECT_EQ(block.runnable_warps, 3U);
}

TEST(Block, ReportsWhoWaitsWhere) {
  const Grid grid{.kernel = "k", .grid = {1}, .block = {3}};
  Block block;
  ASSERT_TRUE(block.begin(grid, {0, 0, 0}));
  block.threads[0].state = ThreadState::at_barrier;
  block.threads[0].site = {"folder/norm.cu", 12, "__syncthreads"};
  block.threads[1].state = ThreadState::returned;
  block.threads[2].state = ThreadState::returned;
  EXPECT_EQ(
      waiting_report(block),
      "1 thread wait in __syncthreads at norm.cu:12 (first: thread (0,0,0) of block (0,0,0)); "
      "2 threads have returned (first: thread (1,0,0) of block (0,0,0))");
}

}  // namespace
}  // namespace plimsoll::host_cuda
