#include "router/api/route_table.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

RouteMatch matched(std::string_view method, std::string_view path) {
  auto match = match_route(method, path);
  EXPECT_TRUE(std::holds_alternative<RouteMatch>(match)) << method << " " << path;
  if (auto* found = std::get_if<RouteMatch>(&match)) return std::move(*found);
  return {};
}

ApiError refused(std::string_view method, std::string_view path) {
  auto match = match_route(method, path);
  EXPECT_TRUE(std::holds_alternative<ApiError>(match)) << method << " " << path;
  if (auto* error = std::get_if<ApiError>(&match)) return std::move(*error);
  return {};
}

TEST(RouteTable, FindsEveryRoute) {
  EXPECT_EQ(matched("POST", "/v1/completions").endpoint, Endpoint::completions);
  EXPECT_EQ(matched("POST", "/v1/chat/completions").endpoint, Endpoint::chat_completions);
  EXPECT_EQ(matched("GET", "/v1/models").endpoint, Endpoint::models);
  EXPECT_EQ(matched("GET", "/health").endpoint, Endpoint::health);
  EXPECT_EQ(matched("HEAD", "/readyz").endpoint, Endpoint::health);
  EXPECT_EQ(matched("GET", "/livez").endpoint, Endpoint::live);
  EXPECT_EQ(matched("GET", "/metrics").endpoint, Endpoint::metrics);
  EXPECT_EQ(matched("POST", "/tokenize").endpoint, Endpoint::tokenize);
  EXPECT_EQ(matched("POST", "/detokenize").endpoint, Endpoint::detokenize);
  EXPECT_EQ(matched("GET", "/version").endpoint, Endpoint::version);
}

TEST(RouteTable, AModelsIdIsTheDecodedRest) {
  const RouteMatch match = matched("GET", "/v1/models/org%2Fname/x");
  EXPECT_EQ(match.endpoint, Endpoint::model);
  EXPECT_EQ(match.rest, "org/name/x");
}

TEST(RouteTable, AnUnknownPathIs404) {
  for (const char* path : {"/v1/nothing", "/", "", "/v1/models/", "//v1/models", "/V1/models",
                           "/v1/completions/", "/v1%2fmodels", "/health/"}) {
    const auto match = match_route("GET", path);
    ASSERT_TRUE(std::holds_alternative<ApiError>(match)) << path;
    EXPECT_EQ(std::get<ApiError>(match).status, 404) << path;
  }
}

TEST(RouteTable, AWrongMethodIs405WithAllow) {
  const ApiError error = refused("GET", "/v1/completions");
  EXPECT_EQ(error.status, 405);
  EXPECT_EQ(error.allow, "POST, OPTIONS");
  EXPECT_EQ(refused("DELETE", "/health").allow, "GET, HEAD, OPTIONS");
  EXPECT_EQ(refused("get", "/health").status, 405);
}

TEST(RouteTable, OptionsTellsTheMethods) {
  const RouteMatch match = matched("OPTIONS", "/v1/chat/completions");
  EXPECT_EQ(match.endpoint, Endpoint::options);
  EXPECT_EQ(match.allow, "POST, OPTIONS");
  EXPECT_EQ(matched("OPTIONS", "*").endpoint, Endpoint::options);
}

}  // namespace
}  // namespace plimsoll
