#include "shared/tokenizer/jinja/filters.h"

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

// Most filters are compared with the reference in tests/golden/chat_template/snippets.jsonl.
TEST(JinjaFilters, AreKnownByName) {
  EXPECT_TRUE(is_filter("tojson"));
  EXPECT_FALSE(is_filter("Tojson"));
  EXPECT_FALSE(is_filter(""));
}

TEST(JinjaFilters, RefuseWhatTheyCannotTake) {
  EXPECT_EQ(evaluate("1 | length"), "line 1: int has no length");
  EXPECT_EQ(evaluate("[] | items"), "line 1: items needs a dict, not list");
  EXPECT_EQ(evaluate("[1] | map('nothing')"), "line 1: map: unknown filter 'nothing'");
  EXPECT_EQ(evaluate("[1] | select('nothing')"), "line 1: unknown test 'nothing'");
  EXPECT_EQ(evaluate("'a' | indent('x', 1) | replace('a')"), "line 1: replace needs two arguments");
}

TEST(JinjaFilters, FollowDottedAttributes) {
  constexpr const char* kVariables = R"({"l": [{"f": {"n": ["x"]}}, {"f": {"n": ["y"]}}]})";
  EXPECT_EQ(evaluate("l | map(attribute='f.n.0') | join(',')", kVariables), "x,y");
  EXPECT_EQ(evaluate("l | selectattr('f.n.0', 'eq', 'y') | list | length", kVariables), "1");
}

TEST(JinjaFilters, NothingIsSelectedFromNone) {
  EXPECT_EQ(evaluate("none | selectattr('a') | list"), "[]");
}

TEST(JinjaFilters, ReadJson) {
  EXPECT_EQ(evaluate("('{\"a\": [1]}' | from_json).a[0]"), "1");
  EXPECT_EQ(evaluate("'{' | from_json").substr(0, 18), "line 1: from_json:");
}

}  // namespace
}  // namespace plimsoll::jinja
