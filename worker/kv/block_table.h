// BlockTable: the KV blocks of one sequence, in the order of its tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/units.h"

namespace plimsoll {

struct BlockTable {
  std::vector<std::int32_t> blocks;
  Blocks published = 0;  // leading blocks that other sequences may hold too; see PrefixCache

  Blocks size() const { return static_cast<Blocks>(blocks.size()); }
  static Blocks blocks_for(Tokens tokens) { return ceil_div(tokens, kKvBlockTokens); }
};

}  // namespace plimsoll
