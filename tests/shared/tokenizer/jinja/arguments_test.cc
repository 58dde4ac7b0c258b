#include "shared/tokenizer/jinja/arguments.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

TEST(JinjaArguments, AreFoundByPlaceOrByName) {
  Heap heap({});
  Arguments given;
  given.positional = {integer(5), none()};
  given.named = {{"third", heap.text("x", true)}, {"flag", boolean(true)}};
  EXPECT_EQ(*given.integer(0, "first", 1), 5);
  EXPECT_EQ(*given.integer(1, "second", 1), 1) << "none means the default";
  EXPECT_EQ(*given.text(2, "third", ""), "x");
  EXPECT_TRUE(given.truth(3, "flag", false));
  EXPECT_EQ(given.find(3, "fourth"), nullptr);
  EXPECT_EQ(*given.text(3, "fourth", "default"), "default");
}

TEST(JinjaArguments, AnotherTypeIsRefusedByName) {
  Heap heap({});
  Arguments given;
  given.positional = {heap.text("x", true)};
  EXPECT_EQ(given.integer(0, "width", 1).error().message,
            "argument 'width' must be an int, not str");
  given.positional = {integer(1)};
  EXPECT_EQ(given.text(0, "sep", "").error().message, "argument 'sep' must be a str, not int");
}

}  // namespace
}  // namespace plimsoll::jinja
