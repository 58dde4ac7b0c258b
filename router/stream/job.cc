#include "router/stream/job.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace plimsoll {

Job::Job(JobSetup setup, const Tokenizer& tokenizer)
    : setup_(std::move(setup)), writer_(setup_.head) {
  for (const Prompt& prompt : setup_.prompts) {
    for (std::int64_t i = 0; i < setup_.n; ++i) {
      ChoiceSettings settings;
      settings.stop = setup_.stop;
      settings.stop_ids = setup_.stop_ids;
      settings.scores = setup_.head.scores;
      settings.echo = setup_.echo;
      if (setup_.echo) {
        settings.prompt_text = prompt.text;
        settings.prompt = prompt.ids;
      }
      choices_.push_back({ChoiceStream(tokenizer, std::move(settings)), {}});
    }
  }
  open_choices_ = choices_.size();
}

const Prompt& Job::prompt_of(std::size_t choice) const {
  return setup_.prompts[choice / static_cast<std::size_t>(setup_.n)];
}

void Job::open(std::size_t choice) {
  if (std::exchange(choices_[choice].opened, true)) return;
  events_ += writer_.role(choice);
}

void Job::open_early() {
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) open(choice);
}

void Job::count_cached(std::size_t choice, const TokenEvent& event) {
  if (event.cached_tokens < 0 || std::exchange(choices_[choice].cache_told, true)) return;
  if (choice % static_cast<std::size_t>(setup_.n) == 0) cached_tokens_ += event.cached_tokens;
}

void Job::push(std::size_t index, const TokenEvent& event) {
  Choice& choice = choices_[index];
  if (!choice.stream.finish().empty()) return;
  count_cached(index, event);
  ChoicePiece piece = choice.stream.push(event);
  const std::string& finish = choice.stream.finish();
  const bool ended = !finish.empty();
  if (ended) --open_choices_;
  if (!setup_.stream) {
    choice.result.text += piece.text;
    std::ranges::move(piece.scores, std::back_inserter(choice.result.scores));
    choice.result.finish = finish;
    return;
  }
  open(index);
  if (!piece.text.empty() || !piece.scores.empty()) events_ += writer_.content(index, piece);
  if (ended) events_ += writer_.finish(index, finish);
  if (!done()) return;
  if (setup_.head.include_usage) events_ += writer_.usage(usage());
  events_ += ChunkWriter::done();
}

std::string Job::take_events() { return std::exchange(events_, {}); }

Usage Job::usage() const {
  Usage usage;
  for (const Prompt& prompt : setup_.prompts) {
    usage.prompt_tokens += static_cast<std::int64_t>(prompt.ids.size());
  }
  for (const Choice& choice : choices_)
    usage.completion_tokens += choice.stream.completion_tokens();
  usage.cached_tokens = cached_tokens_;
  return usage;
}

std::string Job::body() const {
  std::vector<ChoiceResult> results;
  results.reserve(choices_.size());
  for (const Choice& choice : choices_) results.push_back(choice.result);
  return whole_response(setup_.head, results, usage());
}

}  // namespace plimsoll
