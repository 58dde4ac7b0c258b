#include "shared/base/shown_text.h"

#include "shared/base/text.h"

namespace plimsoll {

std::string shown(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : to_valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || c == '\n') {
      out += c;
    } else {
      out += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
  }
  return out;
}

}  // namespace plimsoll
