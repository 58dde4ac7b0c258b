#include "shared/memory/window_text.h"

#include <fmt/format.h>

#include "shared/memory/memory_terms.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

std::string value_text(const OptionRow& row, std::int64_t value) {
  switch (row.kind) {
    case OptionKind::fraction:
      return format_fraction(value);
    case OptionKind::size:
      return format_exact_bytes(value);
    default:
      return fmt::format("{}", value);
  }
}

}  // namespace

std::string window_range(const OptionWindow& window) {
  const OptionRow& row = *find_option(window.option);
  std::int64_t low = window.low;
  std::int64_t high = window.high;
  if (row.kind == OptionKind::size && round_up(low, kMiB) <= high / kMiB * kMiB) {
    low = round_up(low, kMiB);
    high = high / kMiB * kMiB;
  }
  const std::string first = value_text(row, low);
  const std::string last = value_text(row, high);
  return first == last ? first : fmt::format("{} to {}", first, last);
}

std::vector<std::string> window_lines(const OptionWindow& window) {
  const OptionRow& row = *find_option(window.option);
  if (!window.is_empty) {
    return {fmt::format("window: --{} {}", window.option, window_range(window)),
            fmt::format("  low end: {}", window.binds_low),
            fmt::format("  high end: {}", window.binds_high)};
  }
  std::vector<std::string> lines = {
      fmt::format("window: empty, no value of --{} works", window.option)};
  lines.push_back(window.low > 0 ? fmt::format("  {} needs at least {}", window.binds_low,
                                               value_text(row, window.low))
                                 : fmt::format("  no value holds {}", window.binds_low));
  lines.push_back(
      window.high > 0
          ? fmt::format("  {} allow at most {}", window.binds_high, value_text(row, window.high))
          : fmt::format("  no value leaves room for {}", window.binds_high));
  return lines;
}

}  // namespace plimsoll
