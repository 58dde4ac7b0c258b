// AddedTokens: finds control and user-defined tokens in text, the longest at each place.
//
// A trie over bytes: the work is bounded by the text's length times the longest token's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/vocabulary.h"

namespace plimsoll {

class AddedTokens {
 public:
  static Result<AddedTokens> build(const Vocabulary& vocabulary);

  struct Found {
    std::size_t position;
    std::size_t length;
    TokenId id;
  };
  // The first one at or after `from`; control tokens only where `with_control`.
  std::optional<Found> find(std::string_view text, std::size_t from, bool with_control) const;

 private:
  struct Node {
    std::int32_t child = -1;  // the first of a list of siblings
    std::int32_t sibling = -1;
    TokenId user_defined = -1;  // the token that ends here
    TokenId control = -1;
    char byte = 0;
  };
  void insert(std::string_view text, TokenId id, bool is_control);
  std::int32_t child(std::int32_t node, char byte) const;

  std::vector<Node> nodes_{Node{}};  // nodes_[0] is the root
};

}  // namespace plimsoll
