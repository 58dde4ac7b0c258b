#include "kernels/cpu/attention_plan.h"

#include <algorithm>

namespace plimsoll {
namespace {

// What reading and converting one KV block costs, in rows of arithmetic.
constexpr std::int64_t kBlockCost = 4;

}  // namespace

AttentionTileRef AttentionTiles::at(std::int64_t sequence, std::int64_t kv_head,
                                    std::int64_t token) const {
  const auto count = static_cast<std::int64_t>(sequences_.size());
  while (sequence < count && token >= sequences_[static_cast<std::size_t>(sequence)].tokens) {
    token = 0;
    // A sequence without tokens has no tiles for any head.
    const bool empty = sequences_[static_cast<std::size_t>(sequence)].tokens == 0;
    if (empty || ++kv_head == kv_heads_) {
      kv_head = 0;
      ++sequence;
    }
  }
  if (sequence >= count) return {.sequence = count};
  const SequenceRows& rows = sequences_[static_cast<std::size_t>(sequence)];
  return {.sequence = sequence,
          .kv_head = kv_head,
          .token = token,
          .tokens = std::min(tile_tokens_, rows.tokens - token),
          .position = rows.position + token,
          .window = window_};
}

AttentionTileRef AttentionTiles::next(const AttentionTileRef& tile) const {
  return at(tile.sequence, tile.kv_head, tile.token + tile.tokens);
}

std::int64_t AttentionTiles::cost(const AttentionTileRef& tile, std::int64_t split) const {
  const std::int64_t before = split * kSplitBlocks;
  const auto blocks = [before](std::int64_t position) {
    return std::clamp<std::int64_t>(position / kKvBlockTokens + 1 - before, 0, kSplitBlocks);
  };
  const std::int64_t first = tile.first_seeing(split * kSplitTokens);
  const std::int64_t end = tile.end_seeing((split + 1) * kSplitTokens - 1);
  if (end <= first) return 0;
  const std::int64_t most = blocks(tile.last_position());
  const std::int64_t least = blocks(tile.position + first);
  return (end - first) * group_ * (most + least) / 2 + kBlockCost * most;
}

void AttentionTiles::share(std::span<AttentionBound> bounds) const {
  const auto threads = static_cast<std::int64_t>(bounds.size()) - 1;
  std::int64_t total = 0;
  if (threads > 1) {
    for (AttentionTileRef tile = first(); tile.tokens > 0; tile = next(tile)) {
      for (std::int64_t split = 0; split < tile.splits(); ++split) total += cost(tile, split);
    }
  }
  bounds[0] = {first(), 0};
  std::int64_t thread = 1;  // whose share is looked for
  std::int64_t before = 0;
  AttentionTileRef tile = first();
  for (; tile.tokens > 0 && thread < threads; tile = next(tile)) {
    for (std::int64_t split = 0; split < tile.splits(); ++split) {
      const std::int64_t unit = cost(tile, split);
      // A unit goes to the thread whose share its middle lies in.
      const std::int64_t owner = (2 * before + unit) * threads / (2 * total);
      for (; thread <= owner && thread < threads; ++thread) {
        bounds[static_cast<std::size_t>(thread)] = {tile, split};
      }
      before += unit;
    }
  }
  const AttentionTileRef end = {.sequence = static_cast<std::int64_t>(sequences_.size())};
  for (; thread <= threads; ++thread) bounds[static_cast<std::size_t>(thread)] = {end, 0};
}

bool same_tile(const AttentionTileRef& a, const AttentionTileRef& b) {
  return a.sequence == b.sequence && a.kv_head == b.kv_head && a.token == b.token;
}

}  // namespace plimsoll
