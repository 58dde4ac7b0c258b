#include "router/api/detokenize.h"

#include <utility>

#include <fmt/core.h>

#include "router/api/request_fields.h"

namespace plimsoll {
namespace {

Refusal token_ids(const ModelContext& model, const Json& tokens, std::vector<TokenId>& ids) {
  if (tokens.is_null()) return bad_field("tokens", "tokens is missing");
  if (std::cmp_greater(tokens.as_array().size(), model.limits.context_length)) {
    return bad_field("tokens",
                     fmt::format("tokens has {} ids; the model's context has {}, and no more are "
                                 "taken at once",
                                 tokens.as_array().size(), model.limits.context_length));
  }
  for (const Json& id : tokens.as_array()) {
    if (!id.is_integer() || id.as_int() < 0 || id.as_int() >= model.tokenizer.vocab_size()) {
      return bad_field("tokens",
                       fmt::format("{} is no token id; they are integers from 0 to {}",
                                   dump_json(id).substr(0, 64), model.tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return {};
}

}  // namespace

HttpResponse detokenize(const ModelContext& model, const HttpRequest& request) {
  Json body;
  RequestFields fields;
  Refusal refusal = read_body(request, body);
  if (!refusal) refusal = read_fields(body, Body::detokenize, fields);
  if (!refusal) refusal = check_model(model, fields.model);
  std::vector<TokenId> ids;
  if (!refusal) refusal = token_ids(model, fields.tokens, ids);
  if (refusal) return error_response(*refusal);
  const std::string text = model.tokenizer.decode(ids, true);
  // vLLM's name and llama-server's for the same text.
  return json_response(Json::object({{"prompt", text}, {"content", text}}), fields.unknown);
}

}  // namespace plimsoll
