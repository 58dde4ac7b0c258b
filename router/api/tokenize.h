// Tokenize: POST /tokenize: text, or messages through the chat template, into token ids.
#pragma once

#include "router/api/model_context.h"

namespace plimsoll {

HttpResponse tokenize(ModelContext& model, const HttpRequest& request);

}  // namespace plimsoll
