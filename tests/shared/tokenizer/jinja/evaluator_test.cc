#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

constexpr const char* kVariables =
    R"({"d": {"items": 1, "k": null}, "l": [1, 2, 3], "s": "añb", "n": null})";

TEST(JinjaEvaluator, AttributesPreferMethodsAndItemsPreferMembers) {
  EXPECT_EQ(evaluate("d['items']", kVariables), "1");
  EXPECT_EQ(evaluate("d.items() | list | length", kVariables), "2");
  EXPECT_EQ(evaluate("d['keys'] is defined", kVariables), "True");
  EXPECT_EQ(evaluate("d.zz is defined", kVariables), "False");
}

TEST(JinjaEvaluator, WhatIsMissingPrintsNothingButHasNoParts) {
  EXPECT_EQ(evaluate("d.zz", kVariables), "");
  EXPECT_EQ(evaluate("n.x", kVariables), "");
  EXPECT_EQ(evaluate("d.zz.y", kVariables), "line 1: 'zz' is undefined");
  EXPECT_EQ(evaluate("zz()", kVariables), "line 1: 'zz' is undefined");
}

TEST(JinjaEvaluator, SlicesCountCharactersAndClampTheirBounds) {
  EXPECT_EQ(evaluate("s[1]", kVariables), "ñ");
  EXPECT_EQ(evaluate("s[::-1]", kVariables), "bña");
  EXPECT_EQ(evaluate("l[-100:100]", kVariables), "[1, 2, 3]");
  EXPECT_EQ(evaluate("l[5:1:-1]", kVariables), "[3]");
  EXPECT_EQ(evaluate("l[::9223372036854775807]", kVariables), "[1]");
  EXPECT_EQ(evaluate("l[-9223372036854775807:]", kVariables), "[1, 2, 3]");
  EXPECT_EQ(evaluate("l[::0]", kVariables), "line 1: a slice's step must not be zero");
  EXPECT_EQ(evaluate("n[1:]", kVariables), "line 1: NoneType cannot be sliced");
}

TEST(JinjaEvaluator, LogicGivesTheOperandAndStopsEarly) {
  EXPECT_EQ(evaluate("n or 'x'", kVariables), "x");
  EXPECT_EQ(evaluate("l and 0 and zz.y", kVariables), "0");
  EXPECT_EQ(evaluate("1 < 2 < 3 > 2"), "True");
}

TEST(JinjaEvaluator, MembershipNeedsAContainer) {
  EXPECT_EQ(evaluate("2 in l and 'k' in d and 'ñ' in s", kVariables), "True");
  EXPECT_EQ(evaluate("1 in s", kVariables), "line 1: 'in <str>' needs a str on its left, not int");
  EXPECT_EQ(evaluate("1 in n", kVariables), "line 1: 'in' is not defined for NoneType");
}

TEST(JinjaEvaluator, ErrorsNameTheInnermostLine) {
  EXPECT_EQ(run_template("\n{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}"),
            "line 3: '+' is not defined between int and str");
}

}  // namespace
}  // namespace plimsoll::jinja
