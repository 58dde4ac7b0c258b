// Vocabulary: the tokens of a model as bytes, and the way back from bytes to an id.
//
// Immutable. One arena of bytes and one flat hash table: loading 49152 tokens takes milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/tokenizer.h"
#include "shared/tokenizer/tokenizer_data.h"

namespace plimsoll {

// U+2581, which SPM vocabularies write for a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
// Appends the text with spaces in place of each mark.
void append_unmarked(std::string_view text, std::string& out);

// Appends the bytes that a spelling in GPT-2's byte alphabet stands for ("Ġthe": " the"). False,
// and nothing appended, where a character is none of the alphabet's 256.
bool append_spelled_bytes(std::string_view spelling, std::string& out);

class Vocabulary {
 public:
  // Tokens are spelled in GPT-2's alphabet, or by SPM (data.is_spm()): as text with marked spaces,
  // bytes as "<0x0A>".
  static Result<Vocabulary> build(const TokenizerData& data);

  std::int64_t size() const { return static_cast<std::int64_t>(types_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  // REQUIRES for both: contains(id).
  std::string_view bytes(TokenId id) const;
  TokenType type(TokenId id) const { return types_[static_cast<std::size_t>(id)]; }
  // Tokens that only a template may write, and that give no text. False outside the vocabulary.
  bool is_control(TokenId id) const;
  // From now on a control token, whatever the file says.
  void make_control(TokenId id) { types_[static_cast<std::size_t>(id)] = TokenType::control; }

  // The token that pieces may merge into, among those that are properly spelled. May be a control
  // token, but not one that stands for a byte of an SPM vocabulary.
  std::optional<TokenId> find(std::string_view bytes) const;

 private:
  void add_spelled(TokenId id, std::string_view text, TokenType type, std::string& scratch);
  void add_marked(TokenId id, std::string_view text, TokenType type);
  void index(TokenId id);

  std::string arena_;
  std::vector<std::uint32_t> ends_;  // of token i in the arena
  std::vector<TokenType> types_;
  std::vector<std::int32_t> slots_;  // open addressing; id + 1, 0 is empty
};

}  // namespace plimsoll
