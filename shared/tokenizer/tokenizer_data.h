// TokenizerData: what a tokenizer is built from, as a model file states it.
//
// Borrows: the file (or the test's own vectors) must outlive it, not the tokenizer made from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/model/gguf.h"

namespace plimsoll {

// As in GGUF's tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct TokenizerData {
  std::string model;                    // "gpt2": byte-level BPE; "llama": SPM
  std::string pre;                      // the pre-tokenizer's name; of gpt2 alone
  std::span<const std::string> tokens;  // as the file spells them (see Vocabulary); index = id
  std::span<const std::int64_t> types;  // TokenType of each token; empty: all normal
  std::span<const std::string> merges;  // "left right"; index = rank, lowest first; of gpt2 alone
  std::span<const double> scores;       // of each token, the highest merges first; of llama alone
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
  std::optional<std::int64_t> eot;
  std::optional<std::int64_t> eom;
  std::optional<bool> add_bos;   // absent: what the tokenizer's family does
  bool add_space_prefix = true;  // SPM: a space before text that follows no other text

  bool is_spm() const { return model == "llama"; }
};

Result<TokenizerData> tokenizer_data(const GgufFile& file);

}  // namespace plimsoll
