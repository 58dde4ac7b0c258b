#include "shared/tokenizer/stream_decoder.h"

#include <utility>

#include "shared/base/text.h"

namespace plimsoll {

std::string StreamDecoder::push(TokenId id) {
  const auto bytes = tokenizer_->token_bytes(id);
  if (!bytes || tokenizer_->is_control(id)) return {};
  held_ += *bytes;
  const std::size_t complete = complete_utf8_prefix(held_);
  std::string text = to_valid_utf8(std::string_view(held_).substr(0, complete));
  held_.erase(0, complete);
  return text;
}

std::string StreamDecoder::finish() { return to_valid_utf8(std::exchange(held_, {})); }

}  // namespace plimsoll
