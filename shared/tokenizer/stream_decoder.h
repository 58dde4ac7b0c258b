// StreamDecoder: token ids of one stream into text, never splitting a character.
//
// push*, then finish once. Control tokens produce no text.
#pragma once

#include <string>
#include <vector>

#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

class StreamDecoder {
 public:
  // `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text that became complete; at most three bytes are held back.
  std::string push(TokenId id);
  // What was held back, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace plimsoll
