#include "shared/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace plimsoll {
namespace {

struct Suffix {
  std::string_view name;
  Bytes bytes;
};
// K, M, G and T alone are binary too: nobody sizes memory in powers of ten.
constexpr std::array<Suffix, 9> kSuffixes = {{{"B", 1},
                                              {"KiB", kKiB},
                                              {"MiB", kMiB},
                                              {"GiB", kGiB},
                                              {"TiB", 1024 * kGiB},
                                              {"K", kKiB},
                                              {"M", kMiB},
                                              {"G", kGiB},
                                              {"T", 1024 * kGiB}}};

// A number without a unit that is at least this can only be bytes.
constexpr double kBareBytesMin = 1024;

}  // namespace

std::string format_bytes(Bytes bytes) {
  const double value = static_cast<double>(bytes);
  const Bytes size = std::abs(bytes);
  if (size >= kGiB) return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
  if (size >= kMiB) return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  if (size >= kKiB) return fmt::format("{:.1f} KiB", value / static_cast<double>(kKiB));
  return fmt::format("{} B", bytes);
}

Result<Bytes> parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || !std::isfinite(number) || number < 0) {
    return invalid(fmt::format("'{}' is not a size; write for example 16GiB or 512MiB", text));
  }
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const Suffix& known : kSuffixes) {
    if (suffix != known.name) continue;
    const double bytes = number * static_cast<double>(known.bytes);
    if (bytes > 9e18) return invalid(fmt::format("'{}' is more than any memory", text));
    return static_cast<Bytes>(bytes);
  }
  if (suffix.empty() && number >= kBareBytesMin && number == std::floor(number)) {
    return number > 9e18 ? Result<Bytes>(invalid(fmt::format("'{}' is more than any memory", text)))
                         : static_cast<Bytes>(number);
  }
  return invalid(fmt::format("'{}' needs a unit: B, KiB, MiB, GiB or TiB (16GiB, 512MiB)", text));
}

}  // namespace plimsoll
