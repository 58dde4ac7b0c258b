#include "shared/model/config_object.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const Json& sample() {
  static const Json json = *parse_json(
      R"({"a": 3, "zero": 0, "big": 5000000000, "x": 1.5, "null": null, "t": true, "s": "word",)"
      R"("list": [1, 2], "words": ["p", "q"], "inner": {"b": 7}})");
  return json;
}

TEST(ConfigObject, ReadsWhatIsThereAndFallsBackWhereItIsNot) {
  const ConfigObject config(sample(), "");
  EXPECT_EQ(*config.size("a"), 3);
  EXPECT_EQ(*config.size_or("none", 9), 9);
  EXPECT_EQ(*config.size_or("null", 9), 9);
  EXPECT_EQ(*config.count_or("zero", 9), 0);
  EXPECT_EQ(*config.positive_or("x", 1), 1.5);
  EXPECT_EQ(*config.bool_or("t", false), true);
  EXPECT_EQ(*config.text_or("s", ""), "word");
  EXPECT_EQ(*config.integers("list"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(*config.texts("words"), (std::vector<std::string>{"p", "q"}));
  EXPECT_TRUE(config.texts("none")->empty());
  EXPECT_FALSE(config.has("null"));
  EXPECT_FALSE(config.object("none")->has_value());
  EXPECT_EQ(*(*config.object("inner"))->size("b"), 7);
}

TEST(ConfigObject, MessagesNameThePathAndWhatWasFound) {
  const ConfigObject config(sample(), "text_config.");
  EXPECT_EQ(config.size("none").error().message,
            "config.json's text_config.none is missing; expected an integer");
  EXPECT_EQ(config.size("none").error().code, Code::not_found);
  EXPECT_EQ(config.size("zero").error().message,
            "config.json's text_config.zero is 0; expected 1 to 1048576");
  EXPECT_EQ(config.size("s").error().message,
            "config.json's text_config.s is of type string; expected an integer");
  EXPECT_FALSE(config.size("big"));
  EXPECT_FALSE(config.bool_or("a", true));
  EXPECT_FALSE(config.text_or("a", ""));
  EXPECT_FALSE(config.texts("list"));
  EXPECT_FALSE(config.integers("words"));
  EXPECT_FALSE(config.object("a"));
  EXPECT_FALSE(config.positive_or("zero", 1));
}

}  // namespace
}  // namespace plimsoll
