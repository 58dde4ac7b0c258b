// GraphSizes: the decode batches that are captured as CUDA graphs, up to a largest one.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll {

// 1, 2, 4, 8, 12, 16 to 256 by 8, to 512 by 16, beyond by 32, and `largest` itself: 52 sizes to
// 512.
std::vector<std::int64_t> graph_sizes(std::int64_t largest);
std::int64_t graph_size_count(std::int64_t largest);  // of these, without making them

}  // namespace plimsoll
