// ChoiceStream: the tokens of one choice into text that may be shown, scores, usage and an ending.
//
// Pure: token events in, pieces out. Never splits a character, holds back partial stop strings, and
// releases a token's score together with its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/stream/stop_strings.h"
#include "shared/control/messages.h"
#include "shared/tokenizer/stream_decoder.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

// A token as answers show it.
struct TokenScore {
  std::string bytes;
  std::optional<double> logprob;  // none for the first token of a prompt
  std::vector<std::pair<std::string, double>> top;
  std::int64_t text_offset = 0;  // characters (code points) before it
};

struct ChoicePiece {
  std::string text;
  std::vector<TokenScore> scores;
};

struct ChoiceSettings {
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_ids;  // a token of these that ends the choice has no text
  bool scores = false;
  bool echo = false;  // the prompt comes first
  std::string prompt_text;
  std::vector<std::int64_t> prompt;
};

class ChoiceStream {
 public:
  // `tokenizer` must outlive this.
  ChoiceStream(const Tokenizer& tokenizer, ChoiceSettings settings);

  ChoicePiece push(const TokenEvent& event);

  // "stop" or "length" once it has ended; "" before.
  const std::string& finish() const { return finish_; }
  // The text reached a stop string while the leader went on: cancel it there.
  bool stopped_early() const { return stopped_early_; }
  const std::vector<std::int64_t>& emitted() const { return emitted_; }
  std::int64_t completion_tokens() const { return static_cast<std::int64_t>(emitted_.size()); }

 private:
  struct HeldScore {
    std::size_t begin = 0;  // byte of the generated text where the token's text begins
    TokenScore score;
  };

  TokenScore score_of(std::int64_t id, const TokenLogprob* logprob);
  void add_prompt_scores(const TokenEvent& event);
  void take_echo(bool ended, ChoicePiece& piece);
  void push_token(std::int64_t id, const TokenLogprob* logprob, bool ends, ChoicePiece& piece);
  void release_scores(ChoicePiece& piece);

  const Tokenizer* tokenizer_;
  ChoiceSettings settings_;
  StreamDecoder decoder_;
  StopStrings stops_;
  bool echo_pending_ = false;
  std::vector<TokenScore> prompt_scores_;
  std::vector<HeldScore> held_scores_;
  std::size_t text_bytes_ = 0;      // generated, whether shown or held back
  std::size_t released_bytes_ = 0;  // shown
  std::int64_t characters_ = 0;
  std::vector<std::int64_t> emitted_;
  std::string finish_;
  bool stopped_early_ = false;
};

// Characters that begin in these bytes.
std::int64_t count_characters(std::string_view bytes);

}  // namespace plimsoll
