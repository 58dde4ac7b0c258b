// Tokenizer: text to token ids and back, from a GGUF file's vocabulary: byte-level BPE (GGUF's
// `gpt2`) or SentencePiece's BPE by score (`llama`).
//
// Immutable after construction; one thread at a time may encode (a cache of merged pieces inside).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/gguf.h"

namespace plimsoll {

using TokenId = std::int32_t;

// A piece of a prompt. Only text that we wrote ourselves (a template) may become control tokens;
// the same characters from a user stay text.
struct PromptSegment {
  std::string text;
  bool trusted = false;
  bool operator==(const PromptSegment&) const = default;
};

struct TokenizerData;

class Tokenizer {
 public:
  // Errors: a tokenizer model or pre-tokenizer that we do not have (names those that we have), a
  // vocabulary that contradicts itself.
  static Result<Tokenizer> from_gguf(const GgufFile& file);
  // The same from parts, for vocabularies that a test makes by hand.
  static Result<Tokenizer> from_data(const TokenizerData& data);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Pieces may span the seam of two segments, so that the ids are those of the whole text; added
  // tokens may not. Text that is not UTF-8 is read as decode() would write it.
  // add_bos: puts the beginning-of-sequence token first where the model wants one and the text
  // does not begin with it.
  std::vector<TokenId> encode(const std::vector<PromptSegment>& segments, bool add_bos);
  std::vector<TokenId> encode(std::string_view text, bool trusted, bool add_bos);

  // The bytes of a token, not always valid UTF-8. Control tokens: their name ("<|im_end|>").
  // An id outside the vocabulary: nullopt.
  std::optional<std::string_view> token_bytes(TokenId id) const;
  bool is_control(TokenId id) const;
  // Text of ids; control tokens are left out unless asked for. Invalid UTF-8 becomes U+FFFD. The
  // space that a file asks to put before text is taken away again.
  std::string decode(const std::vector<TokenId>& ids, bool with_control) const;

  std::int64_t vocab_size() const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  // eos, eot, eom and tokens with well-known names of that meaning (<|im_end|>, <|eot_id|>, ...).
  const std::vector<TokenId>& stop_ids() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether from_gguf() has a tokenizer for the file: what a plan asks, so that nothing is loaded
// that could not be served. Errors: as from_gguf().
Status check_tokenizer(const GgufFile& file);

}  // namespace plimsoll
