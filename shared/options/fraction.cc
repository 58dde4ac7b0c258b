#include "shared/options/fraction.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace plimsoll {

std::string format_fraction(Millionths fraction) {
  const Millionths size = std::abs(fraction);
  std::string text =
      fmt::format("{}{}.{:06}", fraction < 0 ? "-" : "", size / kWhole, size % kWhole);
  const std::size_t shortest = text.find('.') + std::string_view(".000").size();
  while (text.back() == '0' && text.size() > shortest) text.pop_back();
  return text;
}

Result<Millionths> parse_fraction(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (failure != std::errc() || rest != end || !std::isfinite(number) || std::abs(number) > 1e6) {
    return invalid(fmt::format("'{}' is not a fraction; write for example 0.88", text));
  }
  const std::size_t point = text.find('.');
  if (point != std::string_view::npos && text.size() - point - 1 > 6) {
    return invalid(fmt::format("'{}' has more than six digits after the point", text));
  }
  return static_cast<Millionths>(std::llround(number * kWhole));
}

}  // namespace plimsoll
