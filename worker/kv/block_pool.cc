#include "worker/kv/block_pool.h"

#include "shared/base/check.h"

namespace plimsoll {

BlockPool::BlockPool(Blocks blocks) : taken_(static_cast<std::size_t>(blocks), false) {
  CHECK(blocks >= 0 && blocks <= INT32_MAX);
  free_.reserve(taken_.size());
  for (Blocks block = blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<std::int32_t>(block));
  }
}

std::int32_t BlockPool::take() {
  CHECK(!free_.empty());
  const std::int32_t block = free_.back();
  free_.pop_back();
  taken_[static_cast<std::size_t>(block)] = true;
  return block;
}

void BlockPool::give_back(std::int32_t block) {
  CHECK(block >= 0 && block < total() && taken_[static_cast<std::size_t>(block)]);
  taken_[static_cast<std::size_t>(block)] = false;
  free_.push_back(block);
}

}  // namespace plimsoll
