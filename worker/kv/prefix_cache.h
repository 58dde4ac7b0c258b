// PrefixCache: all KV blocks of a replica: who holds them, and which tokens the kept ones stand
// for.
//
// A radix tree whose edges are whole blocks of tokens (RadixAttention, arXiv 2312.07104). A full
// block that was computed is published: sequences that begin with the same tokens hold it together,
// and when nobody does it is idle: kept until the space is needed, the longest unused first. A held
// block's ancestors are held by the same sequence, so idle blocks are always whole branches.
//
// Sharing changes no result: K and V of a token have the same bits however they were computed.
// Pure and deterministic: recency counts calls, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/block_table.h"

namespace plimsoll {

class PrefixCache {
 public:
  struct Settings {
    Blocks blocks = 0;
    Blocks table_blocks_max = 0;  // over all tables; at least `blocks`
    bool keep = true;             // false: nothing is published
  };
  explicit PrefixCache(const Settings& settings);

  Blocks total() const { return pool_.total(); }
  Blocks idle() const { return idle_; }
  Blocks available() const { return pool_.free() + idle_; }  // for whoever asks
  Blocks held() const { return pool_.used() - idle_; }       // by at least one table

  // What is kept of these tokens, from the first on, in whole blocks.
  struct Match {
    Blocks blocks = 0;
    Blocks idle = 0;  // of them: held by nobody, and so counted in available()
  };
  Match match(std::span<const std::int32_t> tokens) const;
  // Whether a table of that many blocks can begin with the match and `reserve` stay available.
  bool fits(const Match& match, Blocks blocks, Blocks reserve) const;
  // Holds the first `count` kept blocks of the tokens. REQUIRES: an empty table; match() said so.
  void attach(std::span<const std::int32_t> tokens, Blocks count, BlockTable& table);

  // Holds new blocks until that many tokens fit; none, and false, where too few are available.
  bool grow(BlockTable& table, Tokens tokens);
  // Tells what the table's leading blocks hold: these tokens, all of them computed. Where another
  // sequence has published the same, its block takes the place of the table's own.
  void publish(std::span<const std::int32_t> computed, BlockTable& table);
  // Lets go of all blocks.
  void release(BlockTable& table);

 private:
  static constexpr std::int32_t kRoot = -1;
  struct Edge {
    std::int32_t parent = kRoot;
    std::array<std::int32_t, kKvBlockTokens> tokens;
    auto operator<=>(const Edge&) const = default;
  };
  // By block; meaningful while the block is published.
  struct Node {
    std::map<Edge, std::int32_t>::iterator edge;
    std::int32_t children = 0;
    std::int32_t holders = 0;
    std::uint64_t used_at = 0;  // when the last holder let go
  };

  static Edge edge_of(std::int32_t parent, std::span<const std::int32_t> tokens, Blocks index);
  Node& node(std::int32_t block) { return nodes_[static_cast<std::size_t>(block)]; }
  void hold(std::int32_t block);
  void let_go(std::int32_t block);
  void evict_one();

  BlockPool pool_;
  Blocks table_blocks_max_;
  bool keep_;
  Blocks table_blocks_ = 0;  // over all tables
  Blocks idle_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Node> nodes_;
  std::map<Edge, std::int32_t> edges_;                            // to the block
  std::set<std::pair<std::uint64_t, std::int32_t>> idle_leaves_;  // by used_at
};

}  // namespace plimsoll
