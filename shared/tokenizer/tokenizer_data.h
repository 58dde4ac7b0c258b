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
  std::string model;                    // "gpt2": byte-level BPE
  std::string pre;                      // the pre-tokenizer's name
  std::span<const std::string> tokens;  // in GPT-2's spelling of bytes; index = id
  std::span<const std::int64_t> types;  // TokenType of each token; empty: all normal
  std::span<const std::string> merges;  // "left right"; index = rank, lowest first
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
  std::optional<std::int64_t> eot;
  std::optional<std::int64_t> eom;
  std::optional<bool> add_bos;  // absent: what the pre-tokenizer's family does
};

Result<TokenizerData> tokenizer_data(const GgufFile& file);

}  // namespace plimsoll
