#include "worker/kv/block_table.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace plimsoll {
namespace {

TEST(BlockTable, TakesAsManyBlocksAsTheTokensNeed) {
  BlockPool pool(8);
  BlockTable table;
  EXPECT_TRUE(table.grow_to(1, pool));
  EXPECT_EQ(table.size(), 1);
  EXPECT_TRUE(table.grow_to(kKvBlockTokens, pool));
  EXPECT_EQ(table.size(), 1);
  EXPECT_TRUE(table.grow_to(kKvBlockTokens + 1, pool));
  EXPECT_EQ(table.size(), 2);
}

TEST(BlockTable, TakesNoneWhereTheyAreTooFew) {
  BlockPool pool(2);
  BlockTable table;
  EXPECT_FALSE(table.grow_to(3 * kKvBlockTokens, pool));
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(pool.free(), 2);
}

TEST(BlockTable, GivesThemBackSoThatTheSameComeAgainInOrder) {
  BlockPool pool(4);
  BlockTable table;
  ASSERT_TRUE(table.grow_to(3 * kKvBlockTokens, pool));
  const std::vector<std::int32_t> first(table.blocks().begin(), table.blocks().end());
  table.release(pool);
  EXPECT_EQ(pool.used(), 0);
  ASSERT_TRUE(table.grow_to(3 * kKvBlockTokens, pool));
  EXPECT_TRUE(std::ranges::equal(first, table.blocks()));
}

}  // namespace
}  // namespace plimsoll
