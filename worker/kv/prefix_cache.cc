#include "worker/kv/prefix_cache.h"

#include <algorithm>

#include "shared/base/check.h"

namespace plimsoll {

PrefixCache::PrefixCache(const Settings& settings)
    : pool_(settings.blocks),
      table_blocks_max_(settings.table_blocks_max),
      keep_(settings.keep),
      nodes_(static_cast<std::size_t>(settings.blocks)) {
  CHECK(settings.table_blocks_max >= settings.blocks);
}

PrefixCache::Edge PrefixCache::edge_of(std::int32_t parent, std::span<const std::int32_t> tokens,
                                       Blocks index) {
  Edge edge{.parent = parent, .tokens = {}};
  const auto block = tokens.subspan(static_cast<std::size_t>(index * kKvBlockTokens),
                                    static_cast<std::size_t>(kKvBlockTokens));
  std::ranges::copy(block, edge.tokens.begin());
  return edge;
}

PrefixCache::Match PrefixCache::match(std::span<const std::int32_t> tokens) const {
  Match match;
  std::int32_t parent = kRoot;
  for (const Blocks whole = std::ssize(tokens) / kKvBlockTokens; match.blocks < whole;) {
    const auto found = edges_.find(edge_of(parent, tokens, match.blocks));
    if (found == edges_.end()) break;
    parent = found->second;
    if (nodes_[static_cast<std::size_t>(parent)].holders == 0) ++match.idle;
    ++match.blocks;
  }
  return match;
}

bool PrefixCache::fits(const Match& match, Blocks blocks, Blocks reserve) const {
  return blocks - match.blocks + reserve <= available() - match.idle &&
         table_blocks_ + blocks <= table_blocks_max_;
}

void PrefixCache::attach(std::span<const std::int32_t> tokens, Blocks count, BlockTable& table) {
  CHECK(table.blocks.empty() && table_blocks_ + count <= table_blocks_max_);
  std::int32_t parent = kRoot;
  for (Blocks i = 0; i < count; ++i) {
    const auto found = edges_.find(edge_of(parent, tokens, i));
    CHECK(found != edges_.end());
    parent = found->second;
    hold(parent);
    table.blocks.push_back(parent);
  }
  table.published = count;
  table_blocks_ += count;
}

bool PrefixCache::grow(BlockTable& table, Tokens tokens) {
  const Blocks wanted = std::max<Blocks>(BlockTable::blocks_for(tokens) - table.size(), 0);
  if (wanted > available() || table_blocks_ + wanted > table_blocks_max_) return false;
  for (Blocks i = 0; i < wanted; ++i) {
    if (pool_.free() == 0) evict_one();
    table.blocks.push_back(pool_.take());
  }
  table_blocks_ += wanted;
  return true;
}

void PrefixCache::publish(std::span<const std::int32_t> computed, BlockTable& table) {
  if (!keep_) return;
  CHECK(BlockTable::blocks_for(std::ssize(computed)) <= table.size());
  for (const Blocks whole = std::ssize(computed) / kKvBlockTokens; table.published < whole;) {
    const auto index = static_cast<std::size_t>(table.published);
    const std::int32_t parent = index == 0 ? kRoot : table.blocks[index - 1];
    std::int32_t& own = table.blocks[index];
    const auto [edge, is_new] = edges_.try_emplace(edge_of(parent, computed, table.published), own);
    if (is_new) {
      node(own) = {.edge = edge, .children = 0, .holders = 1, .used_at = 0};
      if (parent != kRoot) ++node(parent).children;
    } else {
      hold(edge->second);
      pool_.give_back(own);
      own = edge->second;
    }
    ++table.published;
  }
}

void PrefixCache::release(BlockTable& table) {
  ++clock_;
  table_blocks_ -= table.size();
  for (; !table.blocks.empty(); table.blocks.pop_back()) {
    if (table.size() <= table.published) {
      let_go(table.blocks.back());
    } else {
      pool_.give_back(table.blocks.back());
    }
  }
  table.published = 0;
}

void PrefixCache::hold(std::int32_t block) {
  Node& held = node(block);
  if (held.holders++ > 0) return;
  --idle_;
  if (held.children == 0) idle_leaves_.erase({held.used_at, block});
}

void PrefixCache::let_go(std::int32_t block) {
  Node& left = node(block);
  if (--left.holders > 0) return;
  ++idle_;
  left.used_at = clock_;
  if (left.children == 0) idle_leaves_.insert({left.used_at, block});
}

void PrefixCache::evict_one() {
  CHECK(!idle_leaves_.empty());
  const std::int32_t block = idle_leaves_.begin()->second;
  idle_leaves_.erase(idle_leaves_.begin());
  const std::int32_t parent = node(block).edge->first.parent;
  edges_.erase(node(block).edge);
  --idle_;
  pool_.give_back(block);
  if (parent == kRoot) return;
  Node& above = node(parent);
  if (--above.children == 0 && above.holders == 0) idle_leaves_.insert({above.used_at, parent});
}

}  // namespace plimsoll
