#include "worker/kv/block_table.h"

#include "kernels/backend.h"

namespace plimsoll {

Blocks BlockTable::blocks_for(Tokens tokens) { return ceil_div(tokens, kKvBlockTokens); }

bool BlockTable::grow_to(Tokens tokens, BlockPool& pool) {
  const Blocks needed = blocks_for(tokens) - size();
  if (needed > pool.free()) return false;
  for (Blocks i = 0; i < needed; ++i) blocks_.push_back(pool.take());
  return true;
}

void BlockTable::release(BlockPool& pool) {
  for (; !blocks_.empty(); blocks_.pop_back()) pool.give_back(blocks_.back());
}

}  // namespace plimsoll
