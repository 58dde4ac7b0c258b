// ApiError: a refusal in OpenAI's shape, {"error": {"message", "type", "param", "code"}}, as a
// response or, once a stream has begun, as its last event.
#pragma once

#include <optional>
#include <string>

#include "router/http/message.h"
#include "shared/base/json.h"
#include "shared/base/result.h"

namespace plimsoll {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field that is wrong; "" becomes null
  std::string code;   // "model_not_found", "queue_full"; "" becomes null
  int retry_after_s = 0;
  std::string allow;  // for 405
};

// Nothing where all is well.
using Refusal = std::optional<ApiError>;

Json error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);
// `data: {"error": {...}}`; the stream then closes without [DONE].
std::string error_event(const ApiError& error);
// HTTP status and Retry-After follow from the code.
ApiError api_error(const Error& error);
ApiError bad_field(std::string param, std::string message);

}  // namespace plimsoll
