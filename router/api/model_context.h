// ModelContext: what endpoints know of the model that is served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/api/api_error.h"
#include "router/api/prompts.h"
#include "router/http/message.h"
#include "shared/tokenizer/chat_template.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {

struct ModelContext {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string name;  // that answers carry
  std::string stem;  // of the model file; a request may name either, or none
  PromptLimits limits;
  std::int64_t created = 0;  // when this router started, seconds since the epoch

  const ChatTemplate* template_or_null() const { return chat_template ? &*chat_template : nullptr; }
};

// Errors: 404 model_not_found.
Refusal check_model(const ModelContext& model, std::string_view asked);
// The body as JSON. Errors: 415; 400 with line and column.
Refusal read_body(const HttpRequest& request, Json& body);
// A JSON answer; fields that were not known are named in X-Plimsoll-Unknown-Fields.
HttpResponse json_response(const Json& body, const std::vector<std::string>& unknown = {});
void name_unknown_fields(HttpResponse& response, const std::vector<std::string>& unknown);

}  // namespace plimsoll
