#include "worker/kv/prefix_cache.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// Blocks of tokens, each block all of one number.
std::vector<std::int32_t> tokens_of(const std::vector<std::int32_t>& blocks) {
  std::vector<std::int32_t> tokens;
  for (const std::int32_t number : blocks) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(kKvBlockTokens), number);
  }
  return tokens;
}

PrefixCache cache_of(Blocks blocks) {
  return PrefixCache({.blocks = blocks, .table_blocks_max = 4 * blocks});
}

// As a sequence does: computes what is not kept, then ends.
void run_through(PrefixCache& cache, const std::vector<std::int32_t>& blocks) {
  const auto tokens = tokens_of(blocks);
  BlockTable table;
  cache.attach(tokens, cache.match(tokens).blocks, table);
  ASSERT_TRUE(cache.grow(table, std::ssize(tokens)));
  cache.publish(tokens, table);
  cache.release(table);
}

TEST(PrefixCache, GrowsATableToWhatTheTokensNeedAndTakesNoneWhereTheyAreTooFew) {
  PrefixCache cache = cache_of(3);
  BlockTable table;
  EXPECT_TRUE(cache.grow(table, 1));
  EXPECT_TRUE(cache.grow(table, kKvBlockTokens));
  EXPECT_EQ(table.size(), 1);
  EXPECT_TRUE(cache.grow(table, kKvBlockTokens + 1));
  EXPECT_EQ(table.size(), 2);
  BlockTable other;
  EXPECT_FALSE(cache.grow(other, 2 * kKvBlockTokens));
  EXPECT_EQ(other.size(), 0);
  EXPECT_EQ(cache.available(), 1);
  cache.release(table);
  EXPECT_EQ(cache.held(), 0);
  EXPECT_EQ(cache.available(), 3);
}

TEST(PrefixCache, WhatWasNeverPublishedIsNotFound) {
  PrefixCache cache = cache_of(8);
  const auto tokens = tokens_of({1, 2});
  BlockTable table;
  ASSERT_TRUE(cache.grow(table, std::ssize(tokens)));
  EXPECT_EQ(cache.match(tokens).blocks, 0);
  cache.release(table);
  EXPECT_EQ(cache.match(tokens).blocks, 0);
  EXPECT_EQ(cache.idle(), 0);
}

TEST(PrefixCache, FindsTheLongestBeginningInWholeBlocks) {
  PrefixCache cache = cache_of(8);
  run_through(cache, {1, 2, 3});
  EXPECT_EQ(cache.match(tokens_of({1, 2, 3, 4})).blocks, 3);
  EXPECT_EQ(cache.match(tokens_of({1, 2, 9})).blocks, 2);
  EXPECT_EQ(cache.match(tokens_of({2, 3})).blocks, 0);
  auto partial = tokens_of({1, 2});
  partial.pop_back();
  EXPECT_EQ(cache.match(partial).blocks, 1);
}

TEST(PrefixCache, AHeldBlockIsNotIdleAndTwoHoldersUseItOnce) {
  PrefixCache cache = cache_of(8);
  run_through(cache, {1, 2});
  EXPECT_EQ(cache.idle(), 2);
  const auto tokens = tokens_of({1, 2});
  BlockTable first;
  BlockTable second;
  cache.attach(tokens, 2, first);
  EXPECT_EQ(cache.match(tokens).idle, 0);
  cache.attach(tokens, 2, second);
  EXPECT_EQ(first.blocks, second.blocks);
  EXPECT_EQ(cache.held(), 2);
  cache.release(first);
  EXPECT_EQ(cache.idle(), 0);
  cache.release(second);
  EXPECT_EQ(cache.idle(), 2);
}

TEST(PrefixCache, OfTwoThatComputedTheSameOneBlockStays) {
  PrefixCache cache = cache_of(8);
  const auto tokens = tokens_of({1, 2});
  BlockTable first;
  BlockTable second;
  ASSERT_TRUE(cache.grow(first, std::ssize(tokens)));
  ASSERT_TRUE(cache.grow(second, std::ssize(tokens) + 1));
  EXPECT_EQ(cache.held(), 5);
  cache.publish(tokens, first);
  cache.publish(tokens, second);
  EXPECT_EQ(cache.held(), 3);
  EXPECT_EQ(second.blocks[0], first.blocks[0]);
  EXPECT_EQ(second.blocks[1], first.blocks[1]);
  cache.release(first);
  cache.release(second);
  EXPECT_EQ(cache.idle(), 2);
  EXPECT_EQ(cache.available(), 8);
}

TEST(PrefixCache, GivesUpTheLongestUnusedBranchFromItsEnd) {
  PrefixCache cache = cache_of(4);
  run_through(cache, {1, 2});
  run_through(cache, {3, 4});
  run_through(cache, {1, 2});
  BlockTable table;
  ASSERT_TRUE(cache.grow(table, kKvBlockTokens));
  EXPECT_EQ(cache.match(tokens_of({3, 4})).blocks, 1);
  ASSERT_TRUE(cache.grow(table, 3 * kKvBlockTokens));
  EXPECT_EQ(cache.match(tokens_of({3, 4})).blocks, 0);
  EXPECT_EQ(cache.match(tokens_of({1, 2})).blocks, 1);
}

TEST(PrefixCache, NeverGivesUpWhatIsHeld) {
  PrefixCache cache = cache_of(4);
  run_through(cache, {1, 2});
  BlockTable holder;
  cache.attach(tokens_of({1, 2}), 1, holder);
  BlockTable table;
  EXPECT_FALSE(cache.grow(table, 4 * kKvBlockTokens));
  ASSERT_TRUE(cache.grow(table, 3 * kKvBlockTokens));
  EXPECT_EQ(cache.match(tokens_of({1, 2})).blocks, 1);
}

TEST(PrefixCache, FitsCountsIdleBlocksThatAMatchWouldTakeOutOfWhatIsAvailable) {
  PrefixCache cache = cache_of(4);
  run_through(cache, {1, 2});
  const PrefixCache::Match match = cache.match(tokens_of({1, 2}));
  EXPECT_TRUE(cache.fits(match, 4, 0));
  EXPECT_FALSE(cache.fits(match, 4, 1));
  EXPECT_FALSE(cache.fits(match, 5, 0));
}

TEST(PrefixCache, TablesNameNoMoreBlocksThanTheirBound) {
  PrefixCache cache({.blocks = 2, .table_blocks_max = 3});
  run_through(cache, {1, 2});
  BlockTable first;
  BlockTable second;
  cache.attach(tokens_of({1, 2}), 2, first);
  EXPECT_FALSE(cache.fits(cache.match(tokens_of({1, 2})), 2, 0));
  EXPECT_TRUE(cache.fits(cache.match(tokens_of({1})), 1, 0));
  cache.attach(tokens_of({1}), 1, second);
  EXPECT_FALSE(cache.grow(second, kKvBlockTokens + 1));
}

TEST(PrefixCache, KeepsNothingWhereItIsToldSo) {
  PrefixCache cache({.blocks = 4, .table_blocks_max = 4, .keep = false});
  run_through(cache, {1, 2});
  EXPECT_EQ(cache.idle(), 0);
  EXPECT_EQ(cache.match(tokens_of({1, 2})).blocks, 0);
}

}  // namespace
}  // namespace plimsoll
