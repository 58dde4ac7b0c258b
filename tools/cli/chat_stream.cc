#include "tools/cli/chat_stream.h"

#include <fmt/format.h>

#include "tools/cli/json_view.h"

namespace plimsoll {

Json chat_request(const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push(Json::object({{"role", message.role}, {"content", message.content}}));
  }
  Json request = Json::object({{"messages", std::move(list)},
                               {"stream", true},
                               {"stream_options", Json::object({{"include_usage", true}})}});
  if (options.max_tokens > 0) request.set("max_tokens", options.max_tokens);
  if (options.temperature) request.set("temperature", *options.temperature);
  return request;
}

std::string chat_error(std::string_view body) {
  const Result<Json> json = parse_json(body);
  return json ? text_at(*json, {"error", "message"}, std::string(body)) : std::string(body);
}

Result<std::string> ChatStream::event(std::string_view data, TimePoint time) {
  if (data == "[DONE]") {
    is_done_ = true;
    return std::string();
  }
  const Json json = TRY_CONTEXT("an event of the answer: ", parse_json(data));
  if (json.find("error") != nullptr) return unavailable(chat_error(data));
  prompt_tokens_ = int_at(json, {"usage", "prompt_tokens"}, prompt_tokens_);
  tokens_ = int_at(json, {"usage", "completion_tokens"}, tokens_);
  std::string text;
  for (const Json& choice : items_at(json, {"choices"})) {
    text += text_at(choice, {"delta", "content"});
    finish_reason_ = text_at(choice, {"finish_reason"}, finish_reason_);
  }
  if (!text.empty()) {
    if (!first_) first_ = time;
    last_ = time;
  }
  answer_ += text;
  return text;
}

double ChatStream::first_token_s() const { return first_ ? to_seconds(*first_ - begin_) : 0; }

double ChatStream::tokens_per_second() const {
  const double took = first_ ? to_seconds(last_ - *first_) : 0;
  return tokens_ > 1 && took > 0 ? static_cast<double>(tokens_ - 1) / took : 0;
}

std::string ChatStream::summary() const {
  return fmt::format("[{} tokens, {:.1f} tokens/s, the first after {:.2f} s]", tokens_,
                     tokens_per_second(), first_token_s());
}

}  // namespace plimsoll
