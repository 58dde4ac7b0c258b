#include "shared/tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/base/utf8.h"
#include "shared/tokenizer/jinja/text.h"

namespace plimsoll::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

std::string with_unix_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // one newline at the end is no text
  return out;
}

// The value of up to `count` digits of a base at the front; how many there were.
std::pair<std::uint32_t, std::size_t> digits(std::string_view text, std::size_t count,
                                             std::uint32_t base) {
  std::uint32_t value = 0;
  std::size_t i = 0;
  for (; i < count && i < text.size(); ++i) {
    const char c = text[i];
    const std::uint32_t digit = is_digit(c)              ? static_cast<std::uint32_t>(c - '0')
                                : (c >= 'a' && c <= 'f') ? static_cast<std::uint32_t>(c - 'a' + 10)
                                : (c >= 'A' && c <= 'F') ? static_cast<std::uint32_t>(c - 'A' + 10)
                                                         : base;
    if (digit >= base) break;
    value = value * base + digit;
  }
  return {value, i};
}

// Python's escapes; unknown ones stay as they are.
Result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t at = kNames.find(c); at != std::string_view::npos) {
      out += kValues[at];
    } else if (c >= '0' && c <= '7') {
      const auto [value, count] = digits(text.substr(i), 3, 8);
      append_utf8(value, out);
      i += count - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const auto [value, count] = digits(text.substr(i + 1), wanted, 16);
      if (count != wanted || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
        return invalid(fmt::format("the escape \\{} is not a character", c));
      }
      append_utf8(value, out);
      i += count;
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      const std::string_view data = std::string_view(source_).substr(at_, tag - at_);
      if (tag >= source_.size()) {
        add_data(data);
        break;
      }
      const char kind = source_[tag + 1];
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      add_data(before_tag(data, kind, sign));
      advance(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (kind == '#') {
        TRY(comment());
      } else if (kind == '%' && raw_follows()) {
        TRY(raw());
      } else {
        TRY(tag_body(kind == '%'));
      }
    }
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  Error error(const std::string& what) const {
    return invalid(fmt::format("line {}: {}", line_, what));
  }

  // Where the next "{{", "{%" or "{#" begins; the size where none does.
  std::size_t next_tag() const {
    for (std::size_t i = source_.find('{', at_); i != std::string::npos;
         i = source_.find('{', i + 1)) {
      const char next = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  // Moves on, counting lines.
  void advance(std::size_t to) {
    to = std::min(to, source_.size());
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_starts_ = to > 0 && source_[to - 1] == '\n';
    at_ = to;
  }

  void add_data(std::string_view data) {
    if (!data.empty()) tokens_.push_back({TokenKind::data, std::string(data), line_});
  }

  // What is left of the text before a tag.
  std::string_view before_tag(std::string_view data, char kind, char sign) const {
    if (sign == '-') {
      const Text text(data, true);
      return data.substr(0, strip(text, std::nullopt, {.left = false}).size());
    }
    if (sign == '+' || kind == '{') return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    // Blanks count only from the beginning of a line on.
    if (newline == std::string_view::npos && !line_starts_ && at_ != 0) return data;
    const Text rest(data.substr(line_start), true);
    return strip(rest, std::nullopt, {}).empty() ? data.substr(0, line_start) : data;
  }

  void skip_spaces() {
    std::size_t to = at_;
    while (const std::size_t length = space_at_front(std::string_view(source_).substr(to)))
      to += length;
    advance(to);
  }

  // Behind the closing "%}" or "#}" whose sign is known.
  void after_block(char sign) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
  }

  Status comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return error("the comment has no end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2);
    after_block(sign);
    return {};
  }

  bool raw_follows() const {
    std::string_view rest = std::string_view(source_).substr(at_);
    while (const std::size_t length = space_at_front(rest)) rest.remove_prefix(length);
    return rest.starts_with("raw") && (rest.size() == 3 || !is_name(rest[3]));
  }

  // {% raw %} text {% endraw %}
  Status raw() {
    skip_spaces();
    advance(at_ + 3);
    skip_spaces();
    const bool strips = std::string_view(source_).substr(at_).starts_with("-%}");
    if (!strips && !std::string_view(source_).substr(at_).starts_with("%}")) {
      return error("raw takes no arguments");
    }
    advance(at_ + (strips ? 3 : 2));
    if (strips) skip_spaces();
    std::size_t tag = at_;
    while (true) {
      tag = source_.find("{%", tag);
      if (tag == std::string::npos) return error("raw has no endraw");
      std::size_t inner = tag + 2;
      const char sign = inner < source_.size() ? source_[inner] : '\0';
      if (sign == '-' || sign == '+') ++inner;
      while (const std::size_t length = space_at_front(std::string_view(source_).substr(inner)))
        inner += length;
      if (!std::string_view(source_).substr(inner).starts_with("endraw")) {
        tag += 2;
        continue;
      }
      add_data(before_tag(std::string_view(source_).substr(at_, tag - at_), '%', sign));
      const std::size_t end = source_.find("%}", inner);
      if (end == std::string::npos) return error("endraw has no end");
      const char last = source_[end - 1];
      advance(end + 2);
      after_block(last);
      return {};
    }
  }

  // The tokens of a block or an output up to its end.
  Status tag_body(bool block) {
    const int opened = line_;
    tokens_.push_back({block ? TokenKind::block_begin : TokenKind::output_begin, "", line_});
    std::string brackets;
    while (true) {
      skip_spaces();
      const std::string_view rest = std::string_view(source_).substr(at_);
      if (rest.empty()) {
        return invalid(fmt::format("line {}: the tag has no end", opened));
      }
      if (brackets.empty() && ends_tag(rest, block)) return {};
      if (is_name_start(rest[0])) {
        name(rest);
      } else if (is_digit(rest[0])) {
        TRY(number(rest));
      } else if (rest[0] == '\'' || rest[0] == '"') {
        TRY(string(rest));
      } else {
        TRY(symbol(rest, brackets));
      }
    }
  }

  bool ends_tag(std::string_view rest, bool block) {
    const std::string_view close = block ? "%}" : "}}";
    const char sign = rest[0] == '-' || (block && rest[0] == '+') ? rest[0] : '\0';
    if (!rest.substr(sign == '\0' ? 0 : 1).starts_with(close)) return false;
    tokens_.push_back({block ? TokenKind::block_end : TokenKind::output_end, "", line_});
    advance(at_ + (sign == '\0' ? 2 : 3));
    if (block) {
      after_block(sign);
    } else if (sign == '-') {
      skip_spaces();
    }
    return true;
  }

  void take(TokenKind kind, std::string value, std::size_t length) {
    tokens_.push_back({kind, std::move(value), line_});
    advance(at_ + length);
  }

  void name(std::string_view rest) {
    std::size_t length = 1;
    while (length < rest.size() && is_name(rest[length])) ++length;
    take(TokenKind::name, std::string(rest.substr(0, length)), length);
  }

  Status number(std::string_view rest) {
    std::string digits_only;
    std::size_t length = 0;
    const auto take_digits = [&] {
      while (length < rest.size() && (is_digit(rest[length]) || rest[length] == '_')) {
        if (rest[length] != '_') digits_only += rest[length];
        ++length;
      }
    };
    take_digits();
    TokenKind kind = TokenKind::integer;
    if (length + 1 < rest.size() && rest[length] == '.' && is_digit(rest[length + 1])) {
      kind = TokenKind::real;
      digits_only += rest[length++];
      take_digits();
    }
    if (length < rest.size() && (rest[length] == 'e' || rest[length] == 'E')) {
      const bool has_sign =
          length + 1 < rest.size() && (rest[length + 1] == '-' || rest[length + 1] == '+');
      const std::size_t first = length + (has_sign ? 2 : 1);
      if (first < rest.size() && is_digit(rest[first])) {
        kind = TokenKind::real;
        digits_only += rest.substr(length, first - length);
        length = first;
        take_digits();
      }
    }
    if (length < rest.size() && is_name(rest[length])) return error("a number runs into a name");
    take(kind, std::move(digits_only), length);
    return {};
  }

  Status string(std::string_view rest) {
    std::size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size()) return error("a string has no end");
    auto value = unescape(rest.substr(1, end - 1));
    if (!value) return error(value.error().message);
    take(TokenKind::text, std::move(*value), end + 1);
    return {};
  }

  Status symbol(std::string_view rest, std::string& brackets) {
    static constexpr std::array<std::string_view, 28> kSymbols = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">",
        "=",  "(",  ")",  "[",  "]",  "{",  "}", ".", ":", "|", ",", ";", "!", "@"};
    const auto* found =
        std::find_if(kSymbols.begin(), kSymbols.end(),
                     [&](std::string_view symbol) { return rest.starts_with(symbol); });
    if (found == kSymbols.end() || *found == "!" || *found == "@" || *found == ";") {
      return error(fmt::format("unexpected character '{}'", rest.substr(0, 1)));
    }
    if (*found == "(" || *found == "[" || *found == "{") brackets += (*found)[0];
    if (*found == ")" || *found == "]" || *found == "}") {
      const char open = *found == ")" ? '(' : *found == "]" ? '[' : '{';
      if (brackets.empty() || brackets.back() != open) {
        return error(fmt::format("unexpected '{}'", *found));
      }
      brackets.pop_back();
    }
    take(TokenKind::symbol, std::string(*found), found->size());
    return {};
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what is at at_ stands at the beginning of a line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(with_unix_newlines(source)).run();
}

}  // namespace plimsoll::jinja
