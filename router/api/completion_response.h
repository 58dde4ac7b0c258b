// CompletionResponse: answers of /v1/completions and /v1/chat/completions as JSON text, whole or in
// chunks of a stream.
//
// Log-probabilities are printed with the digits that read back to the same double.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "router/stream/choice_stream.h"

namespace plimsoll {

struct ResponseHead {
  bool chat = false;
  std::string id;  // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;
  std::string model;
  bool include_usage = false;  // a stream's chunks then carry "usage": null until the last
  bool scores = false;
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompts: found in the prefix cache
};

struct ChoiceResult {
  std::string text;
  std::vector<TokenScore> scores;
  std::string finish;
};

std::string whole_response(const ResponseHead& head, std::span<const ChoiceResult> choices,
                           const Usage& usage);

// Chunks of a stream, each as `data: {...}` and an empty line.
class ChunkWriter {
 public:
  explicit ChunkWriter(const ResponseHead& head);
  std::string role(std::size_t choice) const;  // chat only; "" otherwise
  std::string content(std::size_t choice, const ChoicePiece& piece) const;
  std::string finish(std::size_t choice, const std::string& reason) const;
  std::string usage(const Usage& usage) const;
  static std::string done() { return "data: [DONE]\n\n"; }

 private:
  std::string chunk(std::size_t choice, std::string_view inner, std::string_view logprobs,
                    std::string_view reason) const;

  bool chat_;
  bool scores_;
  std::string before_;  // up to the index of the choice
  std::string after_;   // after the choice
  std::string empty_;   // up to `"choices":`
};

}  // namespace plimsoll
