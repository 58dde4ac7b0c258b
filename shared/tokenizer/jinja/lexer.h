// Lexer: a template's source into tokens, with Jinja's white-space rules applied.
//
// trim_blocks and lstrip_blocks are on, as in Hugging Face's renderer: the newline after a block
// tag and the blanks before it on its line are no text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace plimsoll::jinja {

enum class TokenKind : std::uint8_t {
  data,  // text between tags
  block_begin,
  block_end,
  output_begin,
  output_end,
  name,
  text,  // a string literal, unescaped
  integer,
  real,
  symbol,  // an operator or bracket
  end,     // of the source
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string value;
  int line = 1;
};

// The last token is `end`.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace plimsoll::jinja
