// RouteTable: one row a route; a path matches exactly as it is spelt, or not at all.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "router/api/api_error.h"

namespace plimsoll {

enum class Endpoint {
  completions,
  chat_completions,
  models,
  model,  // the id is the rest of the path
  health,
  live,
  metrics,
  tokenize,
  detokenize,
  version,
  options,  // OPTIONS of any route: 204 with Allow
};

struct RouteMatch {
  Endpoint endpoint = Endpoint::live;
  std::string rest;   // of the path, decoded, for `model`
  std::string allow;  // methods of this path, for `options`
};

// Errors: 404; 405 with Allow.
std::variant<RouteMatch, ApiError> match_route(std::string_view method, std::string_view path);

}  // namespace plimsoll
