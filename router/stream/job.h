// Job: one completion request of a client: its choices, and its answer, whole or as a stream.
//
// Pure: token events in, bytes out. A choice is one prompt of the batch and one of its `n` samples;
// choice = prompt * n + sample. What a choice needs to be run again elsewhere (prompt, seed,
// emitted tokens) is with its request and its stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/api/completion_response.h"
#include "router/api/prompts.h"
#include "router/api/request_fields.h"
#include "router/http/message.h"
#include "router/stream/choice_stream.h"
#include "shared/base/clock.h"

namespace plimsoll {

struct JobSetup {
  ExchangeId exchange = 0;
  bool stream = false;
  bool echo = false;
  std::int64_t n = 1;
  ResponseHead head;
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_ids;
  std::vector<Prompt> prompts;
  TimePoint arrived;
};

class Job {
 public:
  // `tokenizer` must outlive this.
  Job(JobSetup setup, const Tokenizer& tokenizer);

  std::size_t choices() const { return choices_.size(); }
  const Prompt& prompt_of(std::size_t choice) const;
  void push(std::size_t choice, const TokenEvent& event);
  const ChoiceStream& stream_of(std::size_t choice) const { return choices_[choice].stream; }

  bool done() const { return open_choices_ == 0; }
  bool streams() const { return setup_.stream; }
  ExchangeId exchange() const { return setup_.exchange; }
  TimePoint arrived() const { return setup_.arrived; }
  Usage usage() const;
  // Of the prompts, each once: found in the prefix cache by the leader that first computed it.
  std::int64_t cached_tokens() const { return cached_tokens_; }

  // Stream: events since the last call; after the last choice with usage and [DONE].
  std::string take_events();
  // Stream: the first event of each chat choice before there is a token, so that a long wait has an
  // answer's head.
  void open_early();
  // Whole answer. REQUIRES: done().
  std::string body() const;

 private:
  struct Choice {
    ChoiceStream stream;
    ChoiceResult result;
    bool opened = false;
    bool cache_told = false;  // how much of its prompt was cached
  };

  void open(std::size_t choice);
  void count_cached(std::size_t choice, const TokenEvent& event);

  JobSetup setup_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;
  std::size_t open_choices_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::string events_;
};

}  // namespace plimsoll
