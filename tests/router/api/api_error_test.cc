#include "router/api/api_error.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const std::string* header(const HttpResponse& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return &value;
  }
  return nullptr;
}

ApiError error_of(int status, std::string message) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  return error;
}

TEST(ApiErrors, HaveOpenAisShape) {
  EXPECT_EQ(dump_json(error_json(bad_field("top_p", "top_p is wrong"))),
            R"({"error":{"message":"top_p is wrong","type":"invalid_request_error",)"
            R"("param":"top_p","code":"invalid_value"}})");
}

TEST(ApiErrors, AnAbsentParamIsNull) {
  const Json json = error_json(error_of(500, "m"));
  EXPECT_TRUE(json.find("error")->find("param")->is_null());
  EXPECT_TRUE(json.find("error")->find("code")->is_null());
  EXPECT_EQ(json.find("error")->find("type")->as_string(), "server_error");
}

TEST(ApiErrors, UnavailableComesWithRetryAfter) {
  const HttpResponse response = error_response(api_error(unavailable("busy")));
  EXPECT_EQ(response.status, 503);
  ASSERT_NE(header(response, "Retry-After"), nullptr);
  EXPECT_EQ(header(error_response(api_error(invalid("x"))), "Retry-After"), nullptr);
}

TEST(ApiErrors, StatusFollowsFromTheCode) {
  EXPECT_EQ(api_error({Code::timed_out, "late"}).status, 504);
  EXPECT_EQ(api_error({Code::not_found, "gone"}).status, 404);
  EXPECT_EQ(api_error({Code::internal, "ours"}).code, "internal");
}

TEST(ApiErrors, AllowIsAHeaderOf405) {
  ApiError error = error_of(405, "m");
  error.allow = "GET, HEAD";
  const HttpResponse response = error_response(error);
  ASSERT_NE(header(response, "Allow"), nullptr);
  EXPECT_EQ(*header(response, "Allow"), "GET, HEAD");
}

TEST(ApiErrors, AnEventIsOneDataLine) {
  const std::string event = error_event(error_of(503, "a\nb"));
  EXPECT_TRUE(event.starts_with("data: {\"error\":"));
  EXPECT_TRUE(event.ends_with("}\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
}

}  // namespace
}  // namespace plimsoll
