#include "shared/tokenizer/jinja/expression_parser.h"

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

TEST(JinjaExpressionParser, FollowsJinjasPrecedence) {
  EXPECT_EQ(evaluate("1 + 2 * 3"), "7");
  EXPECT_EQ(evaluate("2 ** 3 ** 2"), "64") << "from left to right, unlike Python";
  EXPECT_EQ(evaluate("1 ~ 2 * 3"), "16");
  EXPECT_EQ(evaluate("'a' + 1 ~ 'b'"), "a1b") << "~ binds tighter than +";
  EXPECT_EQ(evaluate("not 1 == 2"), "True");
  EXPECT_EQ(evaluate("-1 | abs"), "1");
  EXPECT_EQ(evaluate("'a' if 0 else 'b' if 0 else 'c'"), "c");
  EXPECT_EQ(evaluate("1 if x is defined and x else 2"), "2");
}

TEST(JinjaExpressionParser, TestsTakeOneBareArgument) {
  EXPECT_EQ(evaluate("6 is divisibleby 3 and true"), "True");
  EXPECT_EQ(evaluate("6 is not divisibleby(4)"), "True");
}

TEST(JinjaExpressionParser, BoundsNesting) {
  const auto nested = [](std::size_t depth) {
    return evaluate(std::string(depth, '(') + "1" + std::string(depth, ')'));
  };
  EXPECT_EQ(nested(40), "1");
  EXPECT_EQ(nested(100), "line 1: nested deeper than 60 levels");
  std::string sum = "1";
  for (int i = 0; i < 1000; ++i) sum += " + 1";
  EXPECT_EQ(evaluate(sum), "line 1: an expression is deeper than 250 operations");
}

TEST(JinjaExpressionParser, SaysWhatItDidNotExpect) {
  EXPECT_EQ(evaluate("1 +"), "line 1: unexpected '}}'");
  EXPECT_EQ(evaluate("f(a=1, 2)"), "line 1: an argument without a name follows one with a name");
  EXPECT_EQ(evaluate("f(*a)"), "line 1: * and ** in arguments are not supported");
  EXPECT_EQ(evaluate("99999999999999999999"), "line 1: 99999999999999999999 is too large");
  EXPECT_EQ(evaluate("a b"), "line 1: unexpected 'b'");
}

}  // namespace
}  // namespace plimsoll::jinja
