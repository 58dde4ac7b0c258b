#include "router/api/route_table.h"

namespace plimsoll {
namespace {

struct Route {
  std::string_view path;
  std::string_view allow;  // all methods of the path
  Endpoint endpoint;
  bool prefix = false;
};

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";

constexpr Route kRoutes[] = {
    {"/v1/completions", kPost, Endpoint::completions},
    {"/v1/chat/completions", kPost, Endpoint::chat_completions},
    {"/v1/models", kGet, Endpoint::models},
    {"/v1/models/", kGet, Endpoint::model, true},
    {"/health", kGet, Endpoint::health},
    {"/readyz", kGet, Endpoint::health},
    {"/livez", kGet, Endpoint::live},
    {"/metrics", kGet, Endpoint::metrics},
    {"/tokenize", kPost, Endpoint::tokenize},
    {"/detokenize", kPost, Endpoint::detokenize},
    {"/version", kGet, Endpoint::version},
};

constexpr std::size_t kPathShownMax = 200;

bool allows(const Route& route, std::string_view method) {
  if (method == "OPTIONS") return true;
  if (route.allow == kPost) return method == "POST";
  return method == "GET" || method == "HEAD";
}

}  // namespace

std::variant<RouteMatch, ApiError> match_route(std::string_view method, std::string_view path) {
  ApiError error;
  if (method == "OPTIONS" && path == "*") {
    return RouteMatch{Endpoint::options, "", "GET, HEAD, POST, OPTIONS"};
  }
  for (const Route& route : kRoutes) {
    const bool matches = route.prefix
                             ? path.size() > route.path.size() && path.starts_with(route.path)
                             : path == route.path;
    if (!matches) continue;
    if (allows(route, method)) {
      RouteMatch match;
      match.endpoint = method == "OPTIONS" ? Endpoint::options : route.endpoint;
      match.rest = route.prefix ? percent_decode(path.substr(route.path.size())) : "";
      match.allow = route.allow;
      return match;
    }
    error.status = 405;
    error.message = std::string(method) + " is not a method of " + std::string(route.path) +
                    "; it takes " + std::string(route.allow);
    error.code = "method_not_allowed";
    error.allow = route.allow;
    return error;
  }
  error.status = 404;
  error.message = "there is no " + std::string(path.substr(0, kPathShownMax)) +
                  " here; chat is at /v1/chat/completions, the list of models at /v1/models";
  error.code = "not_found";
  return error;
}

}  // namespace plimsoll
