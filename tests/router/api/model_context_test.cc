#include "router/api/model_context.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

TEST(ModelContext, ARequestMayNameNoModel) {
  const ModelContext model = tiny_context();
  EXPECT_FALSE(check_model(model, ""));
  EXPECT_FALSE(check_model(model, "ship"));
  const Refusal refusal = check_model(model, "boat");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 404);
  EXPECT_EQ(refusal->param, "model");
  EXPECT_NE(refusal->message.find("ship"), std::string::npos);
}

Refusal read(std::string content_type, std::string body) {
  HttpRequest request = json_request("/", std::move(body));
  request.content_type = std::move(content_type);
  Json json;
  return read_body(request, json);
}

TEST(ModelContext, TakesJsonUnderItsUsualTypes) {
  for (const char* type : {"", "application/json", "Application/JSON; charset=utf-8",
                           "application/vnd.api+json", "text/json"}) {
    EXPECT_FALSE(read(type, "{}")) << type;
  }
}

TEST(ModelContext, AnotherTypeIs415) {
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/x", ";"}) {
    const Refusal refusal = read(type, "{}");
    ASSERT_TRUE(refusal) << type;
    EXPECT_EQ(refusal->status, 415);
  }
}

TEST(ModelContext, BrokenJsonIs400WithItsPlace) {
  const Refusal refusal = read("application/json", "{\n  \"a\": }");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 400);
  EXPECT_NE(refusal->message.find("line 2"), std::string::npos) << refusal->message;
}

TEST(ModelContext, ABodyOfTooManyValuesIs400) {
  std::string many = "[0";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  const Refusal refusal = read("application/json", many + "]");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 400);
  EXPECT_NE(refusal->message.find("more than 1000000 values"), std::string::npos);
}

TEST(ModelContext, AnEmptyBodyIs400) { EXPECT_TRUE(read("application/json", "")); }

TEST(ModelContext, NamesOfUnknownFieldsAreMadePlain) {
  HttpResponse response;
  name_unknown_fields(response, {"top_q", "a\r\nb: c", "x,y"});
  ASSERT_EQ(response.headers.size(), 1U);
  EXPECT_EQ(response.headers[0].first, "X-Plimsoll-Unknown-Fields");
  EXPECT_EQ(response.headers[0].second, "top_q, a??b:?c, x?y");
  HttpResponse plain;
  name_unknown_fields(plain, {});
  EXPECT_TRUE(plain.headers.empty());
}

}  // namespace
}  // namespace plimsoll
