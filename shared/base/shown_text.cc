#include "shared/base/shown_text.h"

#include <algorithm>

#include "shared/base/text.h"

namespace plimsoll {

std::string shown(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  const std::string valid = to_valid_utf8(text);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    auto byte = static_cast<unsigned char>(valid[i]);
    const bool is_upper_control =
        byte == 0xc2 && static_cast<unsigned char>(valid[i + 1]) < 0xa0;  // U+0080 to U+009F
    if (is_upper_control) byte = static_cast<unsigned char>(valid[++i]);
    if (!is_upper_control && ((byte >= 0x20 && byte != 0x7f) || byte == '\n')) {
      out += valid[i];
    } else {
      out += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
  }
  return out;
}

std::string shown_line(std::string_view text) {
  std::string line = shown(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace plimsoll
