// Detokenize: POST /detokenize: token ids into text, with control tokens by name.
#pragma once

#include "router/api/model_context.h"

namespace plimsoll {

HttpResponse detokenize(const ModelContext& model, const HttpRequest& request);

}  // namespace plimsoll
