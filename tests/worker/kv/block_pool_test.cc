#include "worker/kv/block_pool.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceFromTheLowest) {
  BlockPool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.used(), 3);
}

TEST(BlockPool, HandsOutTheBlockGivenBackLast) {
  BlockPool pool(4);
  for (int i = 0; i < 4; ++i) pool.take();
  pool.give_back(2);
  pool.give_back(0);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 2);
}

TEST(BlockPoolDeathTest, RefusesABlockThatIsFreeAlready) {
  BlockPool pool(2);
  const auto block = pool.take();
  pool.give_back(block);
  EXPECT_DEATH(pool.give_back(block), "CHECK failed");
}

}  // namespace
}  // namespace plimsoll
