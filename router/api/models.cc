#include "router/api/models.h"

namespace plimsoll {
namespace {

Json model_json(const ModelContext& model) {
  return Json::object({{"id", model.name},
                       {"object", "model"},
                       {"created", model.created},
                       {"owned_by", "plimsoll"},
                       {"root", model.stem},
                       {"max_model_len", model.limits.context_length}});
}

}  // namespace

HttpResponse list_models(const ModelContext& model) {
  return json_response(
      Json::object({{"object", "list"}, {"data", Json::array({model_json(model)})}}));
}

HttpResponse show_model(const ModelContext& model, std::string_view id) {
  if (const Refusal refusal = check_model(model, id)) return error_response(*refusal);
  return json_response(model_json(model));
}

}  // namespace plimsoll
