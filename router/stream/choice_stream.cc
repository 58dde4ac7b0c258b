#include "router/stream/choice_stream.h"

#include <algorithm>

namespace plimsoll {
namespace {

std::string bytes_of(const Tokenizer& tokenizer, std::int64_t id) {
  const auto bytes = tokenizer.token_bytes(static_cast<TokenId>(id));
  return bytes ? std::string(*bytes) : std::string();
}

}  // namespace

std::int64_t count_characters(std::string_view bytes) {
  return std::ranges::count_if(
      bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

ChoiceStream::ChoiceStream(const Tokenizer& tokenizer, ChoiceSettings settings)
    : tokenizer_(&tokenizer),
      settings_(std::move(settings)),
      decoder_(tokenizer),
      stops_(settings_.stop),
      echo_pending_(settings_.echo) {
  if (settings_.echo && settings_.scores && !settings_.prompt.empty()) {
    prompt_scores_.push_back(score_of(settings_.prompt.front(), nullptr));
  }
}

TokenScore ChoiceStream::score_of(std::int64_t id, const TokenLogprob* logprob) {
  TokenScore score;
  score.bytes = bytes_of(*tokenizer_, id);
  score.text_offset = characters_;
  characters_ += count_characters(score.bytes);
  if (logprob == nullptr) return score;
  score.logprob = logprob->logprob;
  const std::size_t count = std::min(logprob->top_ids.size(), logprob->top_logprobs.size());
  for (std::size_t i = 0; i < count; ++i) {
    score.top.emplace_back(bytes_of(*tokenizer_, logprob->top_ids[i]), logprob->top_logprobs[i]);
  }
  return score;
}

void ChoiceStream::add_prompt_scores(const TokenEvent& event) {
  if (!settings_.echo || !settings_.scores) return;
  for (const TokenLogprob& logprob : event.prompt_logprobs) {
    if (prompt_scores_.size() >= settings_.prompt.size()) return;
    prompt_scores_.push_back(score_of(settings_.prompt[prompt_scores_.size()], &logprob));
  }
}

// The prompt is shown once all of its scores are there.
void ChoiceStream::take_echo(bool ended, ChoicePiece& piece) {
  const bool complete = !settings_.scores || prompt_scores_.size() >= settings_.prompt.size();
  if (!echo_pending_ || (!complete && !ended)) return;
  echo_pending_ = false;
  if (!settings_.scores) characters_ += count_characters(settings_.prompt_text);
  piece.text += settings_.prompt_text;
  std::ranges::move(prompt_scores_, std::back_inserter(piece.scores));
  prompt_scores_.clear();
}

void ChoiceStream::push_token(std::int64_t id, const TokenLogprob* logprob, bool ends,
                              ChoicePiece& piece) {
  emitted_.push_back(id);
  if (settings_.scores) held_scores_.push_back({text_bytes_, score_of(id, logprob)});
  const bool silent = ends && std::ranges::count(settings_.stop_ids, id) > 0;
  if (silent) return;
  const std::string text = decoder_.push(static_cast<TokenId>(id));
  text_bytes_ += text.size();
  const std::string shown = stops_.push(text);
  released_bytes_ += shown.size();
  piece.text += shown;
}

void ChoiceStream::release_scores(ChoicePiece& piece) {
  const bool all = !finish_.empty() && !stops_.stopped();
  std::size_t count = 0;
  while (count < held_scores_.size() && (all || held_scores_[count].begin < released_bytes_)) {
    piece.scores.push_back(std::move(held_scores_[count++].score));
  }
  held_scores_.erase(held_scores_.begin(),
                     held_scores_.begin() + static_cast<std::ptrdiff_t>(count));
  if (stops_.stopped()) held_scores_.clear();
}

ChoicePiece ChoiceStream::push(const TokenEvent& event) {
  ChoicePiece piece;
  if (!finish_.empty()) return piece;
  const bool ended = event.finish == "stop" || event.finish == "length";
  add_prompt_scores(event);
  take_echo(ended || !event.tokens.empty(), piece);
  for (std::size_t i = 0; i < event.tokens.size() && !stops_.stopped(); ++i) {
    const TokenLogprob* logprob = i < event.logprobs.size() ? &event.logprobs[i] : nullptr;
    push_token(event.tokens[i], logprob, event.finish == "stop" && i + 1 == event.tokens.size(),
               piece);
  }
  if (ended && !stops_.stopped()) {
    std::string rest = stops_.push(decoder_.finish());
    rest += stops_.finish();
    released_bytes_ += rest.size();
    piece.text += rest;
  }
  if (stops_.stopped()) {
    finish_ = "stop";
    stopped_early_ = !ended;
  } else if (ended) {
    finish_ = event.finish;
  }
  if (settings_.scores) release_scores(piece);
  return piece;
}

}  // namespace plimsoll
