#include "router/api/detokenize.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

HttpResponse ask(std::string body) {
  static const ModelContext model = tiny_context();
  return detokenize(model, json_request("/detokenize", std::move(body)));
}

TEST(Detokenize, GivesTheTextUnderBothNames) {
  EXPECT_EQ(ask(R"({"tokens":[123,124]})").body, R"({"prompt":"xy","content":"xy"})");
}

TEST(Detokenize, AnEmptyListIsAnEmptyText) {
  EXPECT_EQ(ask(R"({"tokens":[]})").body, R"({"prompt":"","content":""})");
}

TEST(Detokenize, IsBoundedByTheContext) {
  std::string ids = "123";
  for (int i = 1; i < 64; ++i) ids += ",123";
  EXPECT_EQ(ask("{\"tokens\":[" + ids + "]}").status, 200);
  const HttpResponse response = ask("{\"tokens\":[" + ids + ",123]}");
  ASSERT_EQ(response.status, 400) << response.body;
  EXPECT_EQ(parsed(response.body).find("error")->find("param")->as_string(), "tokens");
}

TEST(Detokenize, RefusesWhatIsNoToken) {
  for (const char* body : {"{}", R"({"tokens":"x"})", R"({"tokens":[-1]})", R"({"tokens":[1e9]})",
                           R"({"tokens":[99999999]})", R"({"tokens":["x"]})"}) {
    const HttpResponse response = ask(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(parsed(response.body).find("error")->find("param")->as_string(), "tokens") << body;
  }
}

}  // namespace
}  // namespace plimsoll
