// ChatStream: an answer of /v1/chat/completions put together from its events. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "shared/base/result.h"

namespace plimsoll {

struct ChatOptions {
  std::int64_t max_tokens = 0;             // 0: as the server decides
  std::optional<double> temperature = {};  // likewise
};

struct ChatMessage {
  std::string role;  // "user", "assistant"
  std::string content;
};

// The request's body; max_tokens 0: the server's default.
Json chat_request(const std::vector<ChatMessage>& messages, const ChatOptions& options);
// What an error answer says: {"error": {"message": ...}}, else the text itself.
std::string chat_error(std::string_view body);

class ChatStream {
 public:
  explicit ChatStream(TimePoint begin) : begin_(begin) {}

  // The text that this event adds. Errors: the server's, or an event that is no JSON.
  Result<std::string> event(std::string_view data, TimePoint time);
  // It said [DONE].
  bool is_done() const { return is_done_; }

  const std::string& answer() const { return answer_; }
  const std::string& finish_reason() const { return finish_reason_; }
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t tokens() const { return tokens_; }
  double first_token_s() const;
  double tokens_per_second() const;  // from the first token on; 0 where there is no second
  std::string summary() const;       // "[96 tokens, 85.1 tokens/s, the first after 0.03 s]"

 private:
  TimePoint begin_;
  std::optional<TimePoint> first_;
  TimePoint last_{};
  std::string answer_;
  std::string finish_reason_;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t tokens_ = 0;
  bool is_done_ = false;
};

}  // namespace plimsoll
