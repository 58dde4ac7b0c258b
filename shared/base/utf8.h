// Utf8: code points as bytes.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll {

// What is no character (a surrogate, beyond U+10FFFF) becomes U+FFFD.
void append_utf8(std::uint32_t code_point, std::string& out);

}  // namespace plimsoll
