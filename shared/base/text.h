// Text: small string helpers that the standard library lacks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

std::string_view trim(std::string_view text);  // ASCII white space at both ends
std::vector<std::string_view> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string lower(std::string_view text);  // ASCII
// The candidate with the least edit distance, or "" where none is near enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);
bool is_utf8(std::string_view text);
// Bytes that are not UTF-8 become U+FFFD, one per maximal subpart.
std::string to_valid_utf8(std::string_view text);
// The length of the longest prefix that ends at a character boundary, given that at most the last
// three bytes may belong to an unfinished character.
std::size_t complete_utf8_prefix(std::string_view text);

}  // namespace plimsoll
