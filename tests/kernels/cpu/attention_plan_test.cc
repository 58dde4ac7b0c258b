#include "kernels/cpu/attention_plan.h"

#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Unit = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

Unit unit(const AttentionTileRef& tile, std::int64_t split) {
  return {tile.sequence, tile.kv_head, tile.token, split};
}

// Every unit in the order of the shares, and for each thread the rows x blocks that it got.
struct Shares {
  std::vector<Unit> units;
  std::vector<std::int64_t> work;
};

Shares walk(const AttentionTiles& tiles, int threads) {
  std::vector<AttentionBound> bounds(static_cast<std::size_t>(threads) + 1);
  tiles.share(bounds);
  Shares shares;
  for (std::size_t thread = 0; thread + 1 < bounds.size(); ++thread) {
    std::int64_t work = 0;
    AttentionTileRef tile = bounds[thread].tile;
    std::int64_t split = bounds[thread].split;
    const AttentionBound& end = bounds[thread + 1];
    while (unit(tile, split) != unit(end.tile, end.split)) {
      shares.units.push_back(unit(tile, split));
      for (std::int64_t t = tile.first_seeing(split * kSplitTokens); t < tile.tokens; ++t) {
        const std::int64_t blocks = (tile.position + t) / kKvBlockTokens + 1 - split * kSplitBlocks;
        work += std::min(blocks, kSplitBlocks) * tiles.group();
      }
      if (++split == tile.splits()) {
        tile = tiles.next(tile);
        split = 0;
      }
    }
    shares.work.push_back(work);
  }
  return shares;
}

TEST(AttentionPlan, SharesCoverEveryUnitOnceForAnyBatch) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + " of seed 7");
    const std::int64_t kv_heads = std::uniform_int_distribution(1, 4)(random);
    const std::int64_t group = std::uniform_int_distribution(1, 16)(random);
    std::vector<SequenceRows> sequences(std::uniform_int_distribution<std::size_t>(0, 6)(random));
    for (SequenceRows& rows : sequences) {
      rows.tokens = std::uniform_int_distribution(0, round % 2 == 0 ? 2 : 200)(random);
      rows.position = std::uniform_int_distribution(0, 1500)(random);
    }
    const AttentionTiles tiles(sequences, {.count = kv_heads * group, .kv_count = kv_heads}, 0);
    const std::vector<Unit> expected = walk(tiles, 1).units;
    std::int64_t tokens = 0;
    for (AttentionTileRef tile = tiles.first(); tile.tokens > 0; tile = tiles.next(tile)) {
      ASSERT_LE(tile.tokens * group, kTileRows);
      tokens += tile.tokens;
    }
    std::int64_t given = 0;
    for (const SequenceRows& rows : sequences) given += rows.tokens * kv_heads;
    EXPECT_EQ(tokens, given);
    EXPECT_EQ(std::set<Unit>(expected.begin(), expected.end()).size(), expected.size());
    for (const int threads : {2, 3, 16}) EXPECT_EQ(walk(tiles, threads).units, expected);
  }
}

TEST(AttentionPlan, SplitsALongSequenceOverThreads) {
  const std::vector<SequenceRows> sequences = {{0, 1, 8191, {}}};
  const Shares shares = walk(AttentionTiles(sequences, {.count = 4, .kv_count = 1}, 0), 4);
  for (const std::int64_t work : shares.work) EXPECT_EQ(work, 8192 / kKvBlockTokens * 4 / 4);
}

TEST(AttentionPlan, BalancesAPromptAlthoughLaterTokensSeeMore) {
  const std::vector<SequenceRows> sequences = {{0, 512, 0, {}}};
  const Shares shares = walk(AttentionTiles(sequences, {.count = 9, .kv_count = 3}, 0), 2);
  const auto first = static_cast<double>(shares.work[0]);
  const auto second = static_cast<double>(shares.work[1]);
  EXPECT_NEAR(first / (first + second), 0.5, 0.03);
}

TEST(AttentionPlan, HasNoTilesWithoutTokens) {
  const std::vector<SequenceRows> sequences = {{0, 0, 5, {}}, {0, 0, 0, {}}};
  EXPECT_TRUE(walk(AttentionTiles(sequences, {.count = 9, .kv_count = 3}, 0), 3).units.empty());
}

}  // namespace
}  // namespace plimsoll
