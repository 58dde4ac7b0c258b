#include "router/api/tokenize.h"

#include "router/api/request_fields.h"
#include "shared/base/text.h"

namespace plimsoll {
namespace {

// The bytes of a token: text, or a list of numbers where they are no text by themselves.
Json piece_json(const ModelContext& model, std::int64_t id) {
  const auto bytes = model.tokenizer.token_bytes(static_cast<TokenId>(id));
  if (!bytes) return {};
  if (is_utf8(*bytes)) return Json(*bytes);
  Json::Array list;
  for (char c : *bytes) list.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return list;
}

Refusal prompt_to_tokenize(ModelContext& model, const RequestFields& fields, Prompt& prompt) {
  if (!fields.messages.is_null()) {
    return chat_prompt(fields, model.tokenizer, model.template_or_null(), model.limits, prompt);
  }
  if (fields.prompt.is_null()) {
    return bad_field("prompt", "one of prompt, content and messages is needed");
  }
  if (fields.prompt.as_string().empty()) return {};
  return text_prompt(fields.prompt.as_string(), fields, model.tokenizer, model.limits, prompt);
}

}  // namespace

HttpResponse tokenize(ModelContext& model, const HttpRequest& request) {
  Json body;
  RequestFields fields;
  Refusal refusal = read_body(request, body);
  if (!refusal) refusal = read_fields(body, Body::tokenize, fields);
  if (!refusal) refusal = check_model(model, fields.model);
  Prompt prompt;
  if (!refusal) refusal = prompt_to_tokenize(model, fields, prompt);
  if (refusal) return error_response(*refusal);
  Json::Array tokens;
  for (std::int64_t id : prompt.ids) {
    if (fields.with_pieces) {
      tokens.push_back(Json::object({{"id", id}, {"piece", piece_json(model, id)}}));
    } else {
      tokens.emplace_back(id);
    }
  }
  return json_response(Json::object({{"count", static_cast<std::int64_t>(prompt.ids.size())},
                                     {"max_model_len", model.limits.context_length},
                                     {"tokens", std::move(tokens)}}),
                       fields.unknown);
}

}  // namespace plimsoll
