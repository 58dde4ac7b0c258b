#include "router/api/completion_response.h"

#include <fmt/core.h>

#include "shared/base/json.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

// Bytes that are no text by themselves are shown as OpenAI does: "bytes:\xf0\x9f".
std::string token_name(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

Json byte_list(const std::string& bytes) {
  Json::Array out;
  out.reserve(bytes.size());
  for (char c : bytes) out.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return out;
}

Json chat_entry(const std::string& bytes, double logprob) {
  return Json::object(
      {{"token", token_name(bytes)}, {"logprob", logprob}, {"bytes", byte_list(bytes)}});
}

Json chat_logprobs(std::span<const TokenScore> scores) {
  Json::Array content;
  for (const TokenScore& score : scores) {
    Json entry = chat_entry(score.bytes, score.logprob.value_or(0));
    Json::Array top;
    for (const auto& [bytes, logprob] : score.top) top.push_back(chat_entry(bytes, logprob));
    entry.set("top_logprobs", std::move(top));
    content.push_back(std::move(entry));
  }
  return Json::object({{"content", std::move(content)}});
}

// The chosen token stands among the alternatives even where it is not one of the best.
Json alternatives(const TokenScore& score) {
  if (!score.logprob) return {};
  Json out = Json::object();
  for (const auto& [bytes, logprob] : score.top) {
    const std::string name = token_name(bytes);
    if (out.find(name) == nullptr) out.set(name, logprob);
  }
  const std::string name = token_name(score.bytes);
  if (out.find(name) == nullptr) out.set(name, *score.logprob);
  return out;
}

Json text_logprobs(std::span<const TokenScore> scores) {
  Json::Array tokens;
  Json::Array logprobs;
  Json::Array top;
  Json::Array offsets;
  for (const TokenScore& score : scores) {
    tokens.emplace_back(token_name(score.bytes));
    logprobs.push_back(score.logprob ? Json(*score.logprob) : Json());
    top.push_back(alternatives(score));
    offsets.emplace_back(score.text_offset);
  }
  return Json::object({{"tokens", std::move(tokens)},
                       {"token_logprobs", std::move(logprobs)},
                       {"top_logprobs", std::move(top)},
                       {"text_offset", std::move(offsets)}});
}

Json logprobs_json(bool chat, std::span<const TokenScore> scores) {
  return chat ? chat_logprobs(scores) : text_logprobs(scores);
}

Json usage_json(const Usage& usage) {
  return Json::object(
      {{"prompt_tokens", usage.prompt_tokens},
       {"completion_tokens", usage.completion_tokens},
       {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
       {"prompt_tokens_details", Json::object({{"cached_tokens", usage.cached_tokens}})}});
}

Json choice_json(const ResponseHead& head, std::size_t index, const ChoiceResult& result) {
  Json choice = Json::object({{"index", static_cast<std::int64_t>(index)}});
  if (head.chat) {
    choice.set("message", Json::object({{"role", "assistant"}, {"content", result.text}}));
  } else {
    choice.set("text", result.text);
  }
  choice.set("logprobs", head.scores ? logprobs_json(head.chat, result.scores) : Json());
  choice.set("finish_reason", result.finish);
  return choice;
}

std::string quoted(const std::string& text) { return dump_json(Json(text)); }

}  // namespace

std::string whole_response(const ResponseHead& head, std::span<const ChoiceResult> choices,
                           const Usage& usage) {
  Json::Array list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    list.push_back(choice_json(head, i, choices[i]));
  }
  return dump_json(Json::object({{"id", head.id},
                                 {"object", head.chat ? "chat.completion" : "text_completion"},
                                 {"created", head.created},
                                 {"model", head.model},
                                 {"choices", std::move(list)},
                                 {"usage", usage_json(usage)}}));
}

// A stream has a chunk a token, so chunks are put together from ready-made text.
ChunkWriter::ChunkWriter(const ResponseHead& head)
    : chat_(head.chat),
      scores_(head.scores),
      after_(head.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n"),
      empty_(fmt::format(R"(data: {{"id":{},"object":"{}","created":{},"model":{},"choices":[)",
                         quoted(head.id), head.chat ? "chat.completion.chunk" : "text_completion",
                         head.created, quoted(head.model))) {
  before_ = empty_ + "{\"index\":";
}

std::string ChunkWriter::chunk(std::size_t choice, std::string_view inner,
                               std::string_view logprobs, std::string_view reason) const {
  return fmt::format(R"({}{},{},"logprobs":{},"finish_reason":{}}}{})", before_, choice, inner,
                     logprobs, reason, after_);
}

std::string ChunkWriter::role(std::size_t choice) const {
  if (!chat_) return {};
  return chunk(choice, R"("delta":{"role":"assistant","content":""})", "null", "null");
}

std::string ChunkWriter::content(std::size_t choice, const ChoicePiece& piece) const {
  const std::string text = quoted(piece.text);
  const std::string inner = chat_ ? "\"delta\":{\"content\":" + text + "}" : "\"text\":" + text;
  const std::string logprobs = scores_ ? dump_json(logprobs_json(chat_, piece.scores)) : "null";
  return chunk(choice, inner, logprobs, "null");
}

std::string ChunkWriter::finish(std::size_t choice, const std::string& reason) const {
  return chunk(choice, chat_ ? "\"delta\":{}" : "\"text\":\"\"", "null", quoted(reason));
}

std::string ChunkWriter::usage(const Usage& usage) const {
  return empty_ + "],\"usage\":" + dump_json(usage_json(usage)) + "}\n\n";
}

}  // namespace plimsoll
