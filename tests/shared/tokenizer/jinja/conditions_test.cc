#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

TEST(JinjaConditions, TellTypesApart) {
  EXPECT_EQ(evaluate("1 is number and 1 is integer and 1 is not float and true is number"), "True");
  EXPECT_EQ(evaluate("'a' is string and 'a' is sequence and 'a' is iterable"), "True");
  EXPECT_EQ(evaluate("{} is mapping and [] is not mapping"), "True");
  EXPECT_EQ(evaluate("none is none and none is defined and x is undefined"), "True");
  EXPECT_EQ(evaluate("1 is true or 'a' is boolean or none is false"), "False");
}

TEST(JinjaConditions, Compare) {
  EXPECT_EQ(evaluate("2 is gt 1 and 2 is le 2 and 2 is ne 3 and 'a' is in 'cab'"), "True");
  EXPECT_EQ(evaluate("1 is lt 'a'"), "line 1: '<' is not defined between int and str");
  EXPECT_EQ(evaluate("1 is divisibleby 0"),
            "line 1: divisibleby needs two numbers, the second not zero");
  EXPECT_EQ(evaluate("1 is eq"), "line 1: test 'eq' needs a value");
}

TEST(JinjaConditions, KnowOddFromEvenAsPythonDoes) {
  EXPECT_EQ(evaluate("3.0 is odd and 4.0 is even and -3.0 is odd and -3 is odd and 0 is even"),
            "True");
  EXPECT_EQ(evaluate("3.0 is even or 4.0 is odd or 2.5 is even or 'a' is odd"), "False");
}

TEST(JinjaConditions, KnowCase) {
  EXPECT_EQ(evaluate("'abc' is lower and 'ÄB' is upper and '12' is not upper"), "True");
}

}  // namespace
}  // namespace plimsoll::jinja
