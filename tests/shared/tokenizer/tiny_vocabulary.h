// TinyVocabulary: a hand-made byte-level vocabulary for tests, with owners for what it borrows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shared/tokenizer/tokenizer_data.h"

namespace plimsoll {

// a b c d e ... are 0, 1, 2, ...; then what a test adds.
struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int64_t> types;
  std::vector<std::string> merges;

  TinyVocabulary() {
    for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
    add("Ġ");  // a space
    add("Ċ");  // a newline
  }
  TokenId add(std::string token, TokenType type = TokenType::normal) {
    tokens.push_back(std::move(token));
    types.push_back(static_cast<std::int64_t>(type));
    return static_cast<TokenId>(tokens.size()) - 1;
  }
  // Adds the token and the merge that makes it.
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  TokenizerData data() const {
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.tokens = tokens;
    data.types = types;
    data.merges = merges;
    return data;
  }
};

}  // namespace plimsoll
