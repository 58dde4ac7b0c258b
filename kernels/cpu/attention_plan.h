// AttentionPlan: how one attention call is cut into tiles, splits and each thread's share of them.
//
// Pure arithmetic. What it decides changes who computes a row and when, never the row's result.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace plimsoll {

// Keys whose softmax is merged as one: a constant, never chosen by load.
constexpr std::int64_t kSplitTokens = 256;
constexpr std::int64_t kSplitBlocks = kSplitTokens / kKvBlockTokens;
// Most rows of a tile: query tokens x heads of a kv group, which are at most 16.
constexpr std::int64_t kTileRows = 48;

// Query tokens [token, token + tokens) of a sequence with all query heads of one kv head.
struct AttentionTileRef {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t token = 0;     // of the sequence's rows
  std::int64_t tokens = 0;    // 0: past the last tile
  std::int64_t position = 0;  // of the first token
  std::int64_t window = 0;    // keys that a token sees, itself included; 0: all

  std::int64_t last_position() const { return position + tokens - 1; }
  std::int64_t splits() const { return last_position() / kSplitTokens + 1; }
  // First token that sees a key at or after `key`.
  std::int64_t first_seeing(std::int64_t key) const {
    return key <= position ? 0 : (key - position < tokens ? key - position : tokens);
  }
  // The token after the last that sees a key at or before `key`, as far as the window goes.
  std::int64_t end_seeing(std::int64_t key) const {
    return window == 0 ? tokens : first_seeing(key + window);
  }
};

// Where a thread's share begins: a split of a tile.
struct AttentionBound {
  AttentionTileRef tile;
  std::int64_t split = 0;
};

class AttentionTiles {
 public:
  struct Heads {
    std::int64_t count = 0;
    std::int64_t kv_count = 0;
  };
  AttentionTiles(std::span<const SequenceRows> sequences, Heads heads, std::int64_t window)
      : sequences_(sequences),
        kv_heads_(heads.kv_count),
        window_(window),
        group_(heads.count / heads.kv_count),
        tile_tokens_(group_ < kTileRows ? kTileRows / group_ : 1) {}

  std::int64_t group() const { return group_; }
  AttentionTileRef first() const { return at(0, 0, 0); }
  AttentionTileRef next(const AttentionTileRef& tile) const;

  // bounds[i] … bounds[i + 1] is the share of thread i; as many bounds as threads, plus one.
  void share(std::span<AttentionBound> bounds) const;

 private:
  AttentionTileRef at(std::int64_t sequence, std::int64_t kv_head, std::int64_t token) const;
  std::int64_t cost(const AttentionTileRef& tile, std::int64_t split) const;

  std::span<const SequenceRows> sequences_;
  std::int64_t kv_heads_;
  std::int64_t window_;
  std::int64_t group_;
  std::int64_t tile_tokens_;
};

// Whether two tiles are the same one; all tiles past the last are.
bool same_tile(const AttentionTileRef& a, const AttentionTileRef& b);

}  // namespace plimsoll
