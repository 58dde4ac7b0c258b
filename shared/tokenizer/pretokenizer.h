// Pretokenizer: cuts text into the pieces inside which byte pairs may merge.
//
// One regular expression a family (PCRE2 with Unicode properties and JIT). Every byte of the text
// belongs to exactly one piece, and the work is bounded for any text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace plimsoll {

class Pretokenizer {
 public:
  // By GGUF's name of it ("smollm", "gpt-2", "llama-bpe", "qwen2" and their aliases).
  static Result<Pretokenizer> named(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // A piece that is itself a token is taken whole, without merging.
  bool ignores_merges() const;
  // Whether models of this family begin a sequence with BOS where their file does not say.
  bool adds_bos() const;

  // `text` must be valid UTF-8. The length of the piece at its front: at least 1 unless empty.
  std::size_t next(std::string_view text) const;
  // Any bytes: what is not valid UTF-8 is cut into single characters, unmatched.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct State;
  explicit Pretokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
