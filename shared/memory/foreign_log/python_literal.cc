#include "shared/memory/foreign_log/python_literal.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "shared/base/text.h"
#include "shared/base/utf8.h"

namespace plimsoll {
namespace {

constexpr int kDepthMax = 48;
constexpr std::size_t kValuesMax = 8'000;
constexpr std::size_t kNameMax = 128;
constexpr std::size_t kTextMax = 64 * 1024;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_open(char c) { return c == '(' || c == '[' || c == '{'; }
bool is_close(char c) { return c == ')' || c == ']' || c == '}'; }

// What a bare word means: a number, a constant, else itself.
Json word_value(std::string_view word) {
  if (word == "None") return nullptr;
  if (word == "True") return true;
  if (word == "False") return false;
  std::int64_t whole = 0;
  const char* begin = word.data();
  const char* end = begin + word.size();
  if (const auto [rest, bad] = std::from_chars(begin, end, whole);
      bad == std::errc() && rest == end && !word.empty()) {
    return whole;
  }
  double number = 0;
  if (const auto [rest, bad] = std::from_chars(begin, end, number);
      bad == std::errc() && rest == end && !word.empty() && std::isfinite(number)) {
    return number;
  }
  return Json(word.substr(0, kTextMax));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  PythonArguments arguments() {
    PythonArguments found;
    while (true) {
      skip_space();
      if (at_ >= text_.size()) {
        found.is_whole = !is_cut_;
        break;
      }
      if (is_close(text_[at_])) {
        found.is_whole = true;
        break;
      }
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      const std::size_t begin = at_;
      std::string name = this->name();
      if (name.empty()) {
        at_ = std::max(at_, begin + 1);
        skip_to_comma();
        continue;
      }
      Json value = this->value(0);
      const auto old = std::ranges::find(found.values, name, &std::pair<std::string, Json>::first);
      if (old != found.values.end()) {
        old->second = std::move(value);
      } else if (found.values.size() < kValuesMax) {
        found.values.emplace_back(std::move(name), std::move(value));
      }
      skip_to_comma();
    }
    return found;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  // Up to the next comma or closing bracket of this level.
  void skip_to_comma() {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || is_close(c))) return;
      if (is_open(c)) ++depth;
      if (is_close(c)) --depth;
      ++at_;
    }
  }

  // `name=` or `'name':`; empty where there is none.
  std::string name() {
    std::string found;
    if (text_[at_] == '\'' || text_[at_] == '"') {
      found = quoted();
    } else {
      const std::size_t begin = at_;
      while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '-')) ++at_;
      found = text_.substr(begin, at_ - begin);
    }
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '=' && text_[at_] != ':')) return "";
    ++at_;
    found.resize(std::min(found.size(), kNameMax));
    return found;
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return to_valid_utf8(out);
      if (out.size() >= kTextMax) continue;
      if (c == '\\' && at_ < text_.size()) {
        escaped(out);
      } else {
        out += c;
      }
    }
    is_cut_ = true;
    return to_valid_utf8(out);
  }

  void escaped(std::string& out) {
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        out += '\n';
        return;
      case 't':
        out += '\t';
        return;
      case 'r':
        out += '\r';
        return;
      case '0':
        out += '\0';
        return;
      case 'x':
        append_utf8(hex(2), out);
        return;
      case 'u':
        append_utf8(hex(4), out);
        return;
      case 'U':
        append_utf8(hex(8), out);
        return;
      default:
        out += c;
        return;
    }
  }

  std::uint32_t hex(std::size_t digits) {
    std::uint32_t code = 0;
    const std::size_t end = std::min(text_.size(), at_ + digits);
    const auto [rest, bad] = std::from_chars(text_.data() + at_, text_.data() + end, code, 16);
    at_ = static_cast<std::size_t>(rest - text_.data());
    return bad == std::errc() ? code : 0xFFFD;
  }

  Json value(int depth) {
    skip_space();
    if (at_ >= text_.size()) {
      is_cut_ = true;
      return nullptr;
    }
    if (++values_ > kValuesMax || depth > kDepthMax) {
      skip_to_comma();
      return nullptr;
    }
    const char c = text_[at_];
    if (c == '\'' || c == '"') return quoted();
    if (c == '{') return braces(depth);
    if (c == '[' || c == '(') return items(depth);
    if (c == '<') return angle();
    return word(depth);
  }

  // [1, 2] and (1, 2).
  Json items(int depth) {
    ++at_;
    Json list = Json::array();
    while (more()) list.push(value(depth + 1)), skip_to_comma();
    return list;
  }

  // {'a': 1} and {1, 2}.
  Json braces(int depth) {
    ++at_;
    Json dict = Json::object();
    Json list = Json::array();
    while (more()) {
      Json key = value(depth + 1);
      skip_space();
      if (at_ < text_.size() && text_[at_] == ':') {
        ++at_;
        dict.set(python_value_text(key), value(depth + 1));
      } else {
        list.push(std::move(key));
      }
      skip_to_comma();
    }
    return list.as_array().empty() ? dict : list;
  }

  // Before an item: skips commas; false at the closing bracket, which it takes, or at the end.
  bool more() {
    while (true) {
      skip_space();
      if (at_ >= text_.size()) {
        is_cut_ = true;
        return false;
      }
      if (is_close(text_[at_])) {
        ++at_;
        return false;
      }
      if (text_[at_] != ',') return true;
      ++at_;
    }
  }

  // <Mode.PIECEWISE: 1>: its text.
  Json angle() {
    const std::size_t begin = at_;
    int depth = 0;
    while (at_ < text_.size()) {
      if (text_[at_] == '<') ++depth;
      if (text_[at_] == '>' && --depth == 0) {
        ++at_;
        break;
      }
      ++at_;
    }
    return Json(to_valid_utf8(text_.substr(begin, std::min(at_ - begin, kValueTextMax))));
  }

  // A number, a constant, a bare text, a prefixed string (b'x') or Name(a=1).
  Json word(int depth) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',' && !is_close(text_[at_]) && text_[at_] != ':' &&
           !is_open(text_[at_]) && text_[at_] != '\'' && text_[at_] != '"') {
      ++at_;
    }
    std::string_view found = trim(text_.substr(begin, at_ - begin));
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"') && found.size() <= 2) {
      return quoted();
    }
    if (at_ < text_.size() && text_[at_] == '(') return call(std::string(found), depth);
    if (at_ < text_.size() && text_[at_] == ':') {
      // A path or URL with a colon; a dict's key ends here.
      if (!in_dict_key(found)) {
        while (at_ < text_.size() && text_[at_] != ',' && !is_close(text_[at_])) ++at_;
        found = trim(text_.substr(begin, at_ - begin));
      }
    }
    return word_value(to_valid_utf8(found));
  }

  // Numbers and constants are keys; other bare words with a colon are texts such as a URL.
  static bool in_dict_key(std::string_view found) { return !word_value(found).is_string(); }

  // Name(a=1, 2): an object of its keywords; positional values alone make the call its text.
  Json call(const std::string& name, int depth) {
    const std::size_t begin = at_;
    Json object = Json::object({{"type", to_valid_utf8(name)}});
    ++at_;
    bool has_keywords = false;
    while (more()) {
      const std::size_t item = at_;
      std::string key = is_word(text_[at_]) ? this->name() : "";
      if (key.empty()) {
        at_ = item;
        (void)value(depth + 1);  // a positional value has no name to be kept under
      } else {
        has_keywords = true;
        object.set(key, value(depth + 1));
      }
      skip_to_comma();
    }
    if (has_keywords) return object;
    return Json(to_valid_utf8(
        name + std::string(text_.substr(begin, std::min(at_ - begin, kValueTextMax)))));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
  bool is_cut_ = false;
};

}  // namespace

PythonArguments parse_python_arguments(std::string_view text) { return Parser(text).arguments(); }

std::string python_value_text(const Json& value) {
  std::string text;
  if (value.is_null()) {
    text = "None";
  } else if (value.is_bool()) {
    text = value.as_bool() ? "True" : "False";
  } else if (value.is_string()) {
    text = value.as_string();
  } else {
    text = dump_json(value);
  }
  if (text.size() > kValueTextMax) {
    text.resize(complete_utf8_prefix(std::string_view(text).substr(0, kValueTextMax)));
    text += "...";
  }
  return text;
}

}  // namespace plimsoll
