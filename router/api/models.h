// Models: GET /v1/models and /v1/models/{id}.
#pragma once

#include <string_view>

#include "router/api/model_context.h"

namespace plimsoll {

HttpResponse list_models(const ModelContext& model);
HttpResponse show_model(const ModelContext& model, std::string_view id);

}  // namespace plimsoll
