#include "shared/memory/graph_sizes.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr std::int64_t step_after(std::int64_t size) {
  if (size < 2) return 1;
  if (size < 4) return 2;
  if (size < 16) return 4;
  if (size < 256) return 8;
  return size < 512 ? 16 : 32;
}

}  // namespace

std::vector<std::int64_t> graph_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= largest; size += step_after(size)) sizes.push_back(size);
  if (!sizes.empty() && sizes.back() != largest) sizes.push_back(largest);
  return sizes;
}

std::int64_t graph_size_count(std::int64_t largest) {
  std::int64_t count = 0;
  std::int64_t last = 0;
  for (std::int64_t size = 1; size <= largest; size += step_after(size)) {
    last = size;
    ++count;
  }
  return last == largest || largest < 1 ? count : count + 1;
}

}  // namespace plimsoll
