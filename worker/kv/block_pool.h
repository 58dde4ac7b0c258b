// BlockPool: the free KV blocks of a rank: a fixed number, handed out by index, last in first out.
//
// Only rank 0 has one; the other ranks are told block tables. Deterministic: the same calls give
// the same blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/base/units.h"

namespace plimsoll {

class BlockPool {
 public:
  explicit BlockPool(Blocks blocks);

  Blocks total() const { return static_cast<Blocks>(taken_.size()); }
  Blocks free() const { return static_cast<Blocks>(free_.size()); }
  Blocks used() const { return total() - free(); }

  std::int32_t take();  // REQUIRES: free() > 0
  // REQUIRES: taken and not given back yet.
  void give_back(std::int32_t block);

 private:
  std::vector<std::int32_t> free_;  // the next one to hand out is the last
  std::vector<bool> taken_;
};

}  // namespace plimsoll
