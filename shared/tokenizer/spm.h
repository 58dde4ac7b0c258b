// Spm: merges the characters of a text into tokens, highest score first (SentencePiece's BPE).
//
// Nothing cuts the text before: a space is a character like any other. n log n in its length.
// Characters that no token holds become the tokens of their bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/tokenizer_data.h"
#include "shared/tokenizer/vocabulary.h"

namespace plimsoll {

class Spm {
 public:
  // Errors: as many scores as tokens are needed, each a number.
  static Result<Spm> build(const Vocabulary& vocabulary, const TokenizerData& data);

  // Appends the tokens of a text, which must be valid UTF-8. `vocabulary`: the one it was built
  // with. Never a control token.
  void encode(const Vocabulary& vocabulary, std::string_view text, std::vector<TokenId>& out);

 private:
  struct Symbol {
    std::uint32_t begin = 0;
    std::uint32_t length = 0;  // 0: merged into the one before
    std::int32_t previous = -1;
    std::int32_t next = -1;
  };
  // A possible merge; stale where the two have another length together meanwhile.
  struct Candidate {
    double score = 0;
    std::int32_t left = 0;
    std::uint32_t length = 0;
  };

  static bool later(const Candidate& a, const Candidate& b);
  std::optional<TokenId> token_of(const Vocabulary& vocabulary, std::string_view piece) const;
  void cut_into_characters(std::string_view text);
  void push_candidate(const Vocabulary& vocabulary, std::string_view text, std::int32_t left);
  void merge(const Candidate& candidate);

  std::vector<double> scores_;
  std::array<TokenId, 256> byte_ids_{};  // -1: that byte has no token
  TokenId unknown_ = -1;
  std::vector<Symbol> symbols_;        // scratch
  std::vector<Candidate> candidates_;  // scratch: a heap
};

}  // namespace plimsoll
