#include "router/api/models.h"

#include <gtest/gtest.h>

#include "tests/router/tiny_context.h"

namespace plimsoll {
namespace {

TEST(Models, ListsTheOneThatIsServed) {
  const Json body = parsed(list_models(tiny_context()).body);
  EXPECT_EQ(body.find("object")->as_string(), "list");
  ASSERT_EQ(body.find("data")->as_array().size(), 1U);
  const Json& model = body.find("data")->as_array()[0];
  EXPECT_EQ(model.find("id")->as_string(), "ship");
  EXPECT_EQ(model.find("object")->as_string(), "model");
  EXPECT_EQ(model.find("max_model_len")->as_int(), 64);
  EXPECT_TRUE(model.find("created")->is_integer());
}

TEST(Models, ShowsItByEitherName) {
  const ModelContext model = tiny_context();
  EXPECT_EQ(show_model(model, "ship").status, 200);
  EXPECT_EQ(show_model(model, "ship-Q4_0").status, 200);
}

TEST(Models, AnotherNameIs404) {
  const HttpResponse response = show_model(tiny_context(), "boat");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(parsed(response.body).find("error")->find("code")->as_string(), "model_not_found");
}

}  // namespace
}  // namespace plimsoll
