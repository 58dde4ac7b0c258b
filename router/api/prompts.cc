#include "router/api/prompts.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace plimsoll {
namespace {

constexpr std::size_t kPromptsMax = 256;                           // of one request
constexpr std::size_t kBatchBytesMax = std::size_t{4} << 20U;      // of text, of several prompts
constexpr std::size_t kArgumentsBytesMax = std::size_t{4} << 20U;  // JSON text within a body
constexpr std::int64_t kCompletionMaxTokensDefault = 16;           // OpenAI's

constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};

ApiError too_long(std::string message) {
  ApiError error;
  error.message = std::move(message);
  error.param = "max_tokens";
  error.code = "context_length_exceeded";
  return error;
}

Refusal check_bytes(std::size_t bytes, const PromptLimits& limits, const char* param) {
  if (bytes <= limits.bytes_max) return {};
  ApiError error = too_long(
      fmt::format("the prompt has {} bytes; the context of {} tokens cannot hold more than {}",
                  bytes, limits.context_length, limits.bytes_max));
  error.param = param;
  return error;
}

std::vector<std::int64_t> widen(const std::vector<TokenId>& ids) {
  return {ids.begin(), ids.end()};
}

// A prompt of no tokens has nothing to predict from.
Refusal check_not_empty(Prompt& prompt, const Tokenizer& tokenizer, const char* param) {
  if (!prompt.ids.empty()) return {};
  if (const auto bos = tokenizer.bos()) {
    prompt.ids.push_back(*bos);
    return {};
  }
  return bad_field(param, "the prompt is empty; it needs at least one token");
}

Refusal add_text(const std::string& text, const RequestFields& fields, Tokenizer& tokenizer,
                 const PromptLimits& limits, std::vector<Prompt>& prompts) {
  Prompt prompt;
  if (Refusal refusal = text_prompt(text, fields, tokenizer, limits, prompt)) return refusal;
  if (Refusal refusal = check_not_empty(prompt, tokenizer, "prompt")) return refusal;
  prompts.push_back(std::move(prompt));
  return {};
}

Refusal add_ids(const Json::Array& list, const Tokenizer& tokenizer, const PromptLimits& limits,
                std::vector<Prompt>& prompts) {
  if (std::cmp_greater(list.size(), limits.context_length)) {
    return too_long(fmt::format("the prompt has {} tokens; the context has {}", list.size(),
                                limits.context_length));
  }
  Prompt prompt;
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_integer() || id.as_int() < 0 || id.as_int() >= tokenizer.vocab_size()) {
      return bad_field("prompt",
                       fmt::format("{} is no token id; they are integers from 0 to {}",
                                   dump_json(id).substr(0, 64), tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  prompt.text = tokenizer.decode(ids, true);
  prompt.ids = widen(ids);
  if (Refusal refusal = check_not_empty(prompt, tokenizer, "prompt")) return refusal;
  prompts.push_back(std::move(prompt));
  return {};
}

Refusal check_message(const Json& message, std::size_t index) {
  const std::string place = fmt::format("messages[{}]", index);
  if (!message.is_object()) {
    return bad_field(
        place, fmt::format("{} must be an object; it is of type {}", place, message.type_name()));
  }
  const Json* role = message.find("role");
  if (role == nullptr || !role->is_string() ||
      std::ranges::find(kRoles, role->as_string()) == std::end(kRoles)) {
    return bad_field(place + ".role", place +
                                          ".role must be one of system, developer, user, "
                                          "assistant, tool and function");
  }
  return {};
}

// A string, or text parts that become one, a line each; null (as beside tool calls) becomes "".
Refusal content_text(const Json& message, std::size_t index, std::string& text) {
  const std::string place = fmt::format("messages[{}].content", index);
  const Json* content = message.find("content");
  if (content == nullptr || content->is_null()) {
    const bool may_lack = message.find("role")->as_string() == "assistant";
    return may_lack ? Refusal{} : bad_field(place, place + " is missing");
  }
  if (content->is_string()) {
    text = content->as_string();
    return {};
  }
  if (!content->is_array()) {
    return bad_field(place, fmt::format("{} must be a string or a list of parts; it is of type {}",
                                        place, content->type_name()));
  }
  bool first = true;
  for (const Json& part : content->as_array()) {
    const Json* type = part.find("type");
    const Json* part_text = part.find("text");
    if (type == nullptr || !type->is_string() || type->as_string() != "text" ||
        part_text == nullptr || !part_text->is_string()) {
      return bad_field(place, place + R"( may have parts {"type": "text", "text": "..."} only)");
    }
    if (!std::exchange(first, false)) text += '\n';
    text += part_text->as_string();
  }
  return {};
}

// Clients send a call's arguments as JSON text; templates expect the object.
Refusal open_tool_arguments(Json& calls, std::size_t& bytes) {
  if (!calls.is_array()) return {};
  for (Json& call : calls.as_array()) {
    const Json* function = call.find("function");
    const Json* arguments = function == nullptr ? nullptr : function->find("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    bytes += arguments->as_string().size();
    if (bytes > kArgumentsBytesMax) {
      return bad_field("messages", fmt::format("the arguments of all tool calls may have {} MiB "
                                               "together; these have more",
                                               kArgumentsBytesMax >> 20U));
    }
    auto parsed = parse_json(arguments->as_string());
    if (!parsed) continue;
    Json changed = *function;
    changed.set("arguments", std::move(*parsed));
    call.set("function", std::move(changed));
  }
  return {};
}

Refusal template_messages(const Json& messages, const PromptLimits& limits, Json& out) {
  if (!messages.is_array() || messages.as_array().empty()) {
    return bad_field("messages", "messages must be a list of at least one message");
  }
  std::size_t bytes = 0;
  std::size_t argument_bytes = 0;
  Json::Array list;
  for (std::size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    if (Refusal refusal = check_message(message, i)) return refusal;
    std::string text;
    if (Refusal refusal = content_text(message, i, text)) return refusal;
    bytes += text.size();
    Json copy = message;
    copy.set("content", std::move(text));
    // OpenAI's newer name for the same thing; templates know the older.
    if (copy.find("role")->as_string() == "developer") copy.set("role", "system");
    if (const Json* calls = copy.find("tool_calls")) {
      Json opened = *calls;
      if (Refusal refusal = open_tool_arguments(opened, argument_bytes)) return refusal;
      copy.set("tool_calls", std::move(opened));
    }
    list.push_back(std::move(copy));
  }
  out = std::move(list);
  return check_bytes(bytes, limits, "messages");
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  const auto bytes = id ? tokenizer.token_bytes(*id) : std::nullopt;
  return bytes ? std::string(*bytes) : std::string();
}

Json template_variables(const RequestFields& fields, const Tokenizer& tokenizer, Json messages) {
  Json variables =
      fields.template_variables.is_object() ? fields.template_variables : Json::object();
  variables.set("messages", std::move(messages));
  variables.set("add_generation_prompt", fields.add_generation_prompt);
  variables.set("bos_token", token_text(tokenizer, tokenizer.bos()));
  variables.set("eos_token", token_text(tokenizer, tokenizer.eos()));
  if (fields.tools.is_array() && !fields.tools.as_array().empty()) {
    variables.set("tools", fields.tools);
  }
  return variables;
}

bool begins_with_bos(const std::vector<PromptSegment>& segments, const std::string& bos) {
  return !bos.empty() && !segments.empty() && segments.front().text.starts_with(bos);
}

}  // namespace

PromptLimits prompt_limits(const Tokenizer& tokenizer, std::int64_t context_length) {
  std::size_t token_bytes_max = 1;
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto bytes = tokenizer.token_bytes(static_cast<TokenId>(id));
    if (bytes) token_bytes_max = std::max(token_bytes_max, bytes->size());
  }
  return {context_length, token_bytes_max * static_cast<std::size_t>(context_length)};
}

Refusal check_batch(const RequestFields& fields, std::size_t& count) {
  count = 1;
  const Json& prompt = fields.prompt;
  if (prompt.is_null()) return bad_field("prompt", "prompt is missing");
  if (prompt.is_string()) return {};
  const Json::Array& list = prompt.as_array();
  if (list.empty()) return bad_field("prompt", "prompt is an empty list");
  if (list.front().is_number()) return {};
  if (list.size() > kPromptsMax) {
    return bad_field("prompt", fmt::format("a request has at most {} prompts; this one has {}",
                                           kPromptsMax, list.size()));
  }
  std::size_t bytes = 0;
  for (const Json& item : list) {
    if (!item.is_string() && !item.is_array()) {
      return bad_field("prompt", fmt::format("a list of prompts has strings or lists of token "
                                             "ids; one is of type {}",
                                             item.type_name()));
    }
    if (item.is_string()) bytes += item.as_string().size();
  }
  if (list.size() > 1 && bytes > kBatchBytesMax) {
    return bad_field("prompt",
                     fmt::format("the {} prompts have {} bytes together; a request of more than "
                                 "one prompt may have {} MiB; send them in several requests",
                                 list.size(), bytes, kBatchBytesMax >> 20U));
  }
  count = list.size();
  return {};
}

Refusal text_prompt(const std::string& text, const RequestFields& fields, Tokenizer& tokenizer,
                    const PromptLimits& limits, Prompt& prompt) {
  if (Refusal refusal = check_bytes(text.size(), limits, "prompt")) return refusal;
  prompt.text = text;
  prompt.ids = widen(tokenizer.encode(text, true, fields.add_special_tokens));
  return {};
}

Refusal completion_prompts(const RequestFields& fields, Tokenizer& tokenizer,
                           const PromptLimits& limits, std::vector<Prompt>& prompts) {
  std::size_t count = 0;
  if (Refusal refusal = check_batch(fields, count)) return refusal;
  const Json& prompt = fields.prompt;
  if (prompt.is_string()) return add_text(prompt.as_string(), fields, tokenizer, limits, prompts);
  const Json::Array& list = prompt.as_array();
  if (list.front().is_number()) return add_ids(list, tokenizer, limits, prompts);
  for (const Json& item : list) {
    Refusal refusal = item.is_string()
                          ? add_text(item.as_string(), fields, tokenizer, limits, prompts)
                          : add_ids(item.as_array(), tokenizer, limits, prompts);
    if (refusal) return refusal;
  }
  return {};
}

Refusal chat_prompt(const RequestFields& fields, Tokenizer& tokenizer,
                    const ChatTemplate* chat_template, const PromptLimits& limits, Prompt& prompt) {
  if (chat_template == nullptr) {
    ApiError error = bad_field("messages",
                               "this model has no chat template that can be used; send a whole "
                               "prompt to /v1/completions instead");
    error.code = "no_chat_template";
    return error;
  }
  Json messages;
  if (Refusal refusal = template_messages(fields.messages, limits, messages)) return refusal;
  auto segments = chat_template->render(template_variables(fields, tokenizer, std::move(messages)));
  if (!segments) {
    return bad_field("messages", "the model's chat template refused: " + segments.error().message);
  }
  std::size_t bytes = 0;
  for (const PromptSegment& segment : *segments) {
    bytes += segment.text.size();
    prompt.text += segment.text;
  }
  if (Refusal refusal = check_bytes(bytes, limits, "messages")) return refusal;
  const bool has_bos = begins_with_bos(*segments, token_text(tokenizer, tokenizer.bos()));
  prompt.ids = widen(tokenizer.encode(*segments, !has_bos));
  return check_not_empty(prompt, tokenizer, "messages");
}

Refusal token_budget(const RequestFields& fields, bool chat, std::size_t prompt_tokens,
                     const PromptLimits& limits, TokenBudget& budget) {
  const auto prompt = static_cast<std::int64_t>(prompt_tokens);
  const std::int64_t left = limits.context_length - prompt;
  if (fields.max_tokens) {
    if (*fields.max_tokens > left) {
      return too_long(fmt::format(
          "this model's context has {} tokens; the prompt has {} and "
          "max_tokens asks for {} more, {} in total",
          limits.context_length, prompt, *fields.max_tokens, prompt + *fields.max_tokens));
    }
    budget.max_tokens = *fields.max_tokens;
    return {};
  }
  if (left < 1) {
    return too_long(
        fmt::format("this model's context has {} tokens; the prompt has {}, which "
                    "leaves none to generate",
                    limits.context_length, prompt));
  }
  budget.max_tokens = chat ? left : std::min(left, kCompletionMaxTokensDefault);
  return {};
}

}  // namespace plimsoll
