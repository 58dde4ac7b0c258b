// Bpe: merges the bytes of one piece of text into tokens, lowest rank first.
//
// n log n in the length of the piece, so that a long one cannot stall anything. Short pieces are
// remembered; hence one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/tokenizer_data.h"
#include "shared/tokenizer/vocabulary.h"

namespace plimsoll {

class Bpe {
 public:
  // `ignore_merges`: a piece that is itself a token is taken whole.
  static Result<Bpe> build(const Vocabulary& vocabulary, const TokenizerData& data,
                           bool ignore_merges);

  // Appends the tokens of a piece. Bytes without a token are left out, as the tokenizers do that
  // such vocabularies come from. `vocabulary`: the one it was built with. Never a control token.
  void encode(const Vocabulary& vocabulary, std::string_view piece, std::vector<TokenId>& out);

 private:
  struct Merge {
    std::uint64_t pair = 0;  // left and right id + 1; 0 is an empty slot
    std::uint32_t rank = 0;
    TokenId merged = 0;
  };
  struct Symbol {
    TokenId id;  // -1: merged into the one before
    std::int32_t previous;
    std::int32_t next;  // -1: none
  };
  // 64 bytes: one cache line.
  struct Remembered {
    std::uint8_t length = 0;  // of text; 0 is an empty slot
    std::uint8_t count = 0;
    std::array<char, 22> text{};
    std::array<TokenId, 10> ids{};
  };

  const Merge* find(TokenId left, TokenId right) const;
  void insert(TokenId left, TokenId right, std::uint32_t rank, TokenId merged);
  void merge(std::string_view piece, std::vector<TokenId>& out);
  // The merge of a symbol with the one after it, or nullptr.
  const Merge* merge_at(std::int32_t left) const;
  void push_candidate(std::int32_t left);

  bool ignore_merges_ = false;
  std::array<TokenId, 256> byte_ids_{};  // -1: that byte has no token
  std::vector<Merge> merges_;            // open addressing
  std::vector<Remembered> remembered_;   // direct-mapped
  std::vector<Symbol> symbols_;          // scratch
  // Scratch: a heap of possible merges, each rank << 32 | index of its left symbol, so that the
  // lowest rank goes first and of equal ranks the leftmost. Entries may be stale.
  std::vector<std::uint64_t> candidates_;
};

}  // namespace plimsoll
