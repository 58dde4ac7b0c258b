// Units: the quantities that the plan and the scheduler count in, and how people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace plimsoll {

using Bytes = std::int64_t;
using Tokens = std::int64_t;
using Blocks = std::int64_t;  // KV blocks, each of block_size tokens

constexpr Bytes kKiB = 1024;
constexpr Bytes kMiB = 1024 * kKiB;
constexpr Bytes kGiB = 1024 * kMiB;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

std::string format_bytes(Bytes bytes);             // "1.25 GiB", "96.2 MiB", "512 B"
Result<Bytes> parse_bytes(std::string_view text);  // "16GiB", "512MiB", "1.5G", "1024B"

}  // namespace plimsoll
