#include "router/api/model_context.h"

#include <utility>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kNameShownMax = 200;

bool is_json_type(std::string_view content_type) {
  if (content_type.empty()) return true;
  const std::string type = lower(trim(split(content_type, ';').front()));
  return type == "application/json" || type == "text/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

// Names go into a header: what is not plain becomes '?'.
std::string plain(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c <= ' ' || c > '~' || c == ',') c = '?';
  }
  return out;
}

}  // namespace

Refusal check_model(const ModelContext& model, std::string_view asked) {
  if (asked.empty() || asked == model.name || asked == model.stem) return {};
  ApiError error;
  error.status = 404;
  error.message = "there is no model " + std::string(asked.substr(0, kNameShownMax)) +
                  " here; the one that is served is " + model.name;
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

Refusal read_body(const HttpRequest& request, Json& body) {
  if (!is_json_type(request.content_type)) {
    ApiError error;
    error.status = 415;
    error.message = "the body is of type " + request.content_type.substr(0, kNameShownMax) +
                    "; send JSON with Content-Type: application/json";
    error.code = "unsupported_media_type";
    return error;
  }
  auto parsed = parse_json(request.body);
  if (!parsed) {
    ApiError error;
    error.message = "the body is not JSON: " + parsed.error().message;
    error.code = "invalid_json";
    return error;
  }
  body = std::move(*parsed);
  return {};
}

void name_unknown_fields(HttpResponse& response, const std::vector<std::string>& unknown) {
  if (unknown.empty()) return;
  std::vector<std::string> names;
  names.reserve(unknown.size());
  for (const std::string& name : unknown) names.push_back(plain(name));
  response.headers.emplace_back("X-Plimsoll-Unknown-Fields", join(names, ", "));
}

HttpResponse json_response(const Json& body, const std::vector<std::string>& unknown) {
  HttpResponse response;
  response.body = dump_json(body);
  name_unknown_fields(response, unknown);
  return response;
}

}  // namespace plimsoll
