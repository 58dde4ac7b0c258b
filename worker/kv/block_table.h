// BlockTable: the KV blocks of one sequence, in the order of its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/units.h"
#include "worker/kv/block_pool.h"

namespace plimsoll {

class BlockTable {
 public:
  static Blocks blocks_for(Tokens tokens);

  std::span<const std::int32_t> blocks() const { return blocks_; }
  Blocks size() const { return static_cast<Blocks>(blocks_.size()); }

  // Takes blocks until that many tokens fit; takes none and returns false where the pool has too
  // few.
  bool grow_to(Tokens tokens, BlockPool& pool);
  // Gives all blocks back, the last first.
  void release(BlockPool& pool);

 private:
  std::vector<std::int32_t> blocks_;
};

}  // namespace plimsoll
