// ShownText: what others wrote, fit for a message or a log.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// Valid UTF-8, with control characters but newlines written as \x1b.
std::string shown(std::string_view text);
// Newlines are spaces.
std::string shown_line(std::string_view text);

}  // namespace plimsoll
