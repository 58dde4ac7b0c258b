#include "router/api/api_error.h"

#include <utility>

namespace plimsoll {
namespace {

constexpr int kRetryAfterSeconds = 2;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json error_json(const ApiError& error) {
  const char* type = error.status >= 500 ? "server_error" : "invalid_request_error";
  return Json::object({{"error", Json::object({{"message", error.message},
                                               {"type", type},
                                               {"param", text_or_null(error.param)},
                                               {"code", text_or_null(error.code)}})}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = dump_json(error_json(error));
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (!error.allow.empty()) response.headers.emplace_back("Allow", error.allow);
  return response;
}

std::string error_event(const ApiError& error) {
  return "data: " + dump_json(error_json(error)) + "\n\n";
}

ApiError api_error(const Error& error) {
  ApiError out;
  out.status = http_status(error.code);
  out.message = error.message;
  out.code = code_name(error.code);
  if (out.status == 503) out.retry_after_s = kRetryAfterSeconds;
  return out;
}

ApiError bad_field(std::string param, std::string message) {
  ApiError out;
  out.message = std::move(message);
  out.param = std::move(param);
  out.code = "invalid_value";
  return out;
}

}  // namespace plimsoll
