#include "shared/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

// Every position of a text may be compared with a whole token, so tokens must stay short.
constexpr std::size_t kTokenBytesMax = 1024;

}  // namespace

Result<AddedTokens> AddedTokens::build(const Vocabulary& vocabulary) {
  AddedTokens added;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const bool is_control = vocabulary.is_control(id);
    if (!is_control && vocabulary.type(id) != TokenType::user_defined) continue;
    const std::string_view text = vocabulary.bytes(id);
    if (text.size() > kTokenBytesMax) {
      return invalid(fmt::format("added token {} has {} bytes; at most {} work", id, text.size(),
                                 kTokenBytesMax));
    }
    if (text.empty()) {
      return invalid(
          fmt::format("added token {} is empty; control and user-defined tokens need a "
                      "text of at least one character",
                      id));
    }
    // Only whole characters match at the boundaries of characters, so that what lies between two
    // tokens stays valid UTF-8.
    if (!is_utf8(text)) {
      return invalid(
          fmt::format("added token {} (\"{}\") is not valid UTF-8; control and "
                      "user-defined tokens must be",
                      id, to_valid_utf8(text)));
    }
    added.insert(text, id, is_control);
  }
  return added;
}

std::int32_t AddedTokens::child(std::int32_t node, char byte) const {
  std::int32_t next = nodes_[static_cast<std::size_t>(node)].child;
  while (next >= 0 && nodes_[static_cast<std::size_t>(next)].byte != byte) {
    next = nodes_[static_cast<std::size_t>(next)].sibling;
  }
  return next;
}

void AddedTokens::insert(std::string_view text, TokenId id, bool is_control) {
  std::int32_t node = 0;
  for (const char byte : text) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      fresh.sibling = nodes_[static_cast<std::size_t>(node)].child;
      nodes_.push_back(fresh);
      nodes_[static_cast<std::size_t>(node)].child = next;
    }
    node = next;
  }
  Node& end = nodes_[static_cast<std::size_t>(node)];
  TokenId& token = is_control ? end.control : end.user_defined;
  if (token < 0) token = id;
}

std::optional<AddedTokens::Found> AddedTokens::find(std::string_view text, std::size_t from,
                                                    bool with_control) const {
  for (std::size_t start = from; start < text.size(); ++start) {
    std::optional<Found> longest;
    std::int32_t node = 0;
    for (std::size_t at = start; at < text.size(); ++at) {
      node = child(node, text[at]);
      if (node < 0) break;
      const Node& here = nodes_[static_cast<std::size_t>(node)];
      const TokenId id = with_control && here.control >= 0 ? here.control : here.user_defined;
      if (id >= 0) longest = Found{start, at + 1 - start, id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace plimsoll
