#include "shared/tokenizer/jinja/text.h"

#include <algorithm>
#include <clocale>
#include <cstring>
#include <cwctype>
#include <utility>

#include <locale.h>
#include <wctype.h>

#include "shared/base/utf8.h"

namespace plimsoll::jinja {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::size_t character_length(std::string_view utf8) {
  std::size_t length = 1;
  while (length < utf8.size() && continues(utf8[length])) ++length;
  return length;
}

std::uint32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (lead < 0x80) return lead;
  std::uint32_t code = lead & (0xFFU >> (character.size() + 1));
  for (const char c : character.substr(1)) {
    code = (code << 6) | (static_cast<unsigned char>(c) & 0x3FU);
  }
  return code;
}

// Unicode's simple case mapping, which the C library has in every UTF-8 locale; without one, ASCII.
class CaseTable {
 public:
  CaseTable() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}
  ~CaseTable() {
    if (locale_ != nullptr) ::freelocale(locale_);
  }
  CaseTable(const CaseTable&) = delete;
  CaseTable& operator=(const CaseTable&) = delete;

  std::uint32_t map(std::uint32_t code, bool large) const {
    if (locale_ == nullptr || code < 0x80) {
      if (large) return code >= 'a' && code <= 'z' ? code - 'a' + 'A' : code;
      return code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code;
    }
    return large ? ::towupper_l(code, locale_) : ::towlower_l(code, locale_);
  }

 private:
  locale_t locale_;
};

// `is_large(position, after_letter)`: whether the character there becomes large.
template <typename IsLarge>
Text map_case(const Text& text, IsLarge is_large) {
  const CaseTable table;
  const std::string_view bytes = text.bytes();
  Text out;
  bool after_letter = false;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = character_length(bytes.substr(i));
    const std::uint32_t code = code_point(bytes.substr(i, length));
    std::string mapped;
    append_utf8(table.map(code, is_large(i, after_letter)), mapped);
    out.append(mapped, text.trusted(i));
    after_letter = table.map(code, true) != table.map(code, false) || (code >= 0x80 && length > 1);
    i += length;
  }
  return out;
}

// What str.splitlines() ends a line at: its length, or 0.
std::size_t line_end_at_front(std::string_view utf8) {
  const char c = utf8.front();
  if ((c >= '\n' && c <= '\r') || (c >= '\x1c' && c <= '\x1e')) return 1;
  for (const std::string_view end : {"\u0085", "\u2028", "\u2029"}) {
    if (utf8.starts_with(end)) return end.size();
  }
  return 0;
}

// Whether the character at the front of `utf8` is one of `set`; its length, or 0.
std::size_t member_at_front(std::string_view utf8, std::optional<std::string_view> set) {
  if (utf8.empty()) return 0;
  if (!set) return space_at_front(utf8);
  const std::size_t length = character_length(utf8);
  return position_of(*set, utf8.substr(0, length)) ? length : 0;
}

}  // namespace

void Text::append(const Text& other) {
  bytes_ += other.bytes_;
  trust_ += other.trust_;
}

void Text::append(std::string_view bytes, bool trusted) {
  bytes_ += bytes;
  trust_.append(bytes.size(), trusted ? '\1' : '\0');
}

Text Text::sub(std::size_t position, std::size_t length) const {
  Text out;
  out.bytes_ = bytes_.substr(position, length);
  out.trust_ = trust_.substr(position, length);
  return out;
}

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return !continues(c); }));
}

std::vector<std::size_t> character_starts(std::string_view utf8) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    if (!continues(utf8[i])) starts.push_back(i);
  }
  starts.push_back(utf8.size());
  return starts;
}

std::size_t space_at_front(std::string_view utf8) {
  if (utf8.empty()) return 0;
  const char c = utf8.front();
  if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f')) return 1;
  for (const std::string_view space :
       {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
        "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f",
        "\u3000"}) {
    if (utf8.starts_with(space)) return space.size();
  }
  return 0;
}

Text strip(const Text& text, std::optional<std::string_view> characters, Strip sides) {
  const std::string_view bytes = text.bytes();
  std::size_t start = 0;
  std::size_t end = bytes.size();
  while (sides.left && start < end) {
    const std::size_t length = member_at_front(bytes.substr(start), characters);
    if (length == 0) break;
    start += length;
  }
  while (sides.right && end > start) {
    std::size_t last = end - 1;
    while (last > start && continues(bytes[last])) --last;
    if (member_at_front(bytes.substr(last, end - last), characters) == 0) break;
    end = last;
  }
  return text.sub(start, end - start);
}

std::size_t count_parts(std::string_view utf8, std::string_view separator) {
  std::size_t count = 1;
  for (auto at = position_of(utf8, separator); at;
       at = position_of(utf8, separator, *at + separator.size())) {
    ++count;
  }
  return count;
}

std::size_t count_words(std::string_view utf8) {
  std::size_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < utf8.size();) {
    const std::size_t space = space_at_front(utf8.substr(at));
    if (space == 0 && !inside) ++count;
    inside = space == 0;
    at += std::max<std::size_t>(space, 1);
  }
  return count;
}

std::size_t count_lines(std::string_view utf8) {
  std::size_t count = 1;
  for (std::size_t at = 0; at < utf8.size();) {
    const std::size_t end = line_end_at_front(utf8.substr(at));
    if (end > 0) ++count;
    at += std::max<std::size_t>(end, 1);
  }
  return count;
}

std::vector<Text> split(const Text& text, std::string_view separator,
                        std::optional<std::size_t> splits_max) {
  std::vector<Text> parts;
  std::size_t from = 0;
  while (!splits_max || parts.size() < *splits_max) {
    const auto at = position_of(text.bytes(), separator, from);
    if (!at) break;
    parts.push_back(text.sub(from, *at - from));
    from = *at + separator.size();
  }
  parts.push_back(text.sub(from));
  return parts;
}

std::vector<Text> split_at_spaces(const Text& text, std::optional<std::size_t> splits_max) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  std::size_t at = 0;
  while (true) {
    while (const std::size_t length = space_at_front(bytes.substr(at))) at += length;
    if (at >= bytes.size()) return parts;
    if (splits_max && parts.size() >= *splits_max) {
      parts.push_back(text.sub(at));
      return parts;
    }
    const std::size_t start = at;
    while (at < bytes.size() && space_at_front(bytes.substr(at)) == 0) ++at;
    parts.push_back(text.sub(start, at - start));
  }
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  std::size_t start = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::string_view rest = bytes.substr(i);
    const std::size_t length = rest.starts_with("\r\n") ? 2 : line_end_at_front(rest);
    if (length > 0) {
      lines.push_back(text.sub(start, i - start));
      start = i + length;
    }
    i += std::max<std::size_t>(length, 1);
  }
  if (start < bytes.size()) lines.push_back(text.sub(start));
  return lines;
}

Text replace(const Text& text, std::string_view from, const Text& to, std::size_t count_max) {
  Text out;
  std::size_t at = 0;
  std::size_t count = 0;
  if (from.empty()) {  // Python puts `to` before every character and at the end
    const auto starts = character_starts(text.bytes());
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (count++ < count_max) out.append(to);
      if (i + 1 < starts.size()) out.append(text.sub(starts[i], starts[i + 1] - starts[i]));
    }
    return out;
  }
  for (; count < count_max; ++count) {
    const auto found = position_of(text.bytes(), from, at);
    if (!found) break;
    out.append(text.sub(at, *found - at));
    out.append(to);
    at = *found + from.size();
  }
  out.append(text.sub(at));
  return out;
}

Text upper(const Text& text) {
  return map_case(text, [](std::size_t, bool) { return true; });
}

Text lower(const Text& text) {
  return map_case(text, [](std::size_t, bool) { return false; });
}

Text capitalize(const Text& text) {
  return map_case(text, [](std::size_t position, bool) { return position == 0; });
}

Text title(const Text& text) {
  return map_case(text, [](std::size_t, bool after_letter) { return !after_letter; });
}

bool has_case(const Text& text) {
  return upper(text).bytes() != text.bytes() || lower(text).bytes() != text.bytes();
}

std::optional<std::size_t> position_of(std::string_view text, std::string_view part,
                                       std::size_t from) {
  if (from > text.size()) return std::nullopt;
  if (part.empty()) return from;
  // memmem is two-way search: linear where std::string::find would be quadratic.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::nullopt;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace plimsoll::jinja
