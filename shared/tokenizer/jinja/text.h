// Text: a string of a template run that remembers, byte by byte, who wrote it.
//
// Trusted bytes were written by the template, the others came in with its variables. Lengths,
// indices and slices count code points, as in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted)
      : bytes_(bytes), trust_(bytes.size(), trusted ? '\1' : '\0') {}

  const std::string& bytes() const { return bytes_; }
  // REQUIRES: at < size().
  bool trusted(std::size_t at) const { return trust_[at] != '\0'; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(const Text& other);
  void append(std::string_view bytes, bool trusted);
  Text sub(std::size_t position, std::size_t length = std::string::npos) const;

 private:
  std::string bytes_;
  std::string trust_;  // one byte for each of bytes_
};

// ---- characters ----

// What mapping a text's case costs, in bytes of plain work: tables are opened for it.
inline std::size_t case_work(const Text& text) { return 2048 + 4 * text.size(); }
std::size_t count_characters(std::string_view utf8);
// Where each character begins, and the size at the end.
std::vector<std::size_t> character_starts(std::string_view utf8);
// Python's str.isspace() at the front of `utf8`: its length in bytes, or 0.
std::size_t space_at_front(std::string_view utf8);

// ---- Python's string methods ----

struct Strip {
  bool left = true;
  bool right = true;
};
// Without `characters`: white space.
Text strip(const Text& text, std::optional<std::string_view> characters, Strip sides);
// As many parts as the functions below give without a bound.
std::size_t count_parts(std::string_view utf8, std::string_view separator);
std::size_t count_words(std::string_view utf8);
std::size_t count_lines(std::string_view utf8);
// At most `splits_max` cuts; none: as many as there are. REQUIRES: separator not empty.
std::vector<Text> split(const Text& text, std::string_view separator,
                        std::optional<std::size_t> splits_max);
std::vector<Text> split_at_spaces(const Text& text, std::optional<std::size_t> splits_max);
std::vector<Text> split_lines(const Text& text);
// At most `count_max` times.
Text replace(const Text& text, std::string_view from, const Text& to, std::size_t count_max);
Text upper(const Text& text);  // by Unicode's simple mapping: one code point for one
Text lower(const Text& text);
Text capitalize(const Text& text);  // the first letter large, the others small
Text title(const Text& text);       // so for every word
bool has_case(const Text& text);    // whether upper or lower would change it
// Position in bytes at or after `from`; linear time for any input.
std::optional<std::size_t> position_of(std::string_view text, std::string_view part,
                                       std::size_t from = 0);

}  // namespace plimsoll::jinja
