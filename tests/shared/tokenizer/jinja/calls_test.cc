#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

TEST(JinjaCalls, MacrosBindByPlaceNameAndDefault) {
  const std::string macro = "{% macro m(a, b='d') %}{{ a }}-{{ b }}{% endmacro %}";
  EXPECT_EQ(run_template(macro + "{{ m(1) }} {{ m(1, 2) }} {{ m(b=3, a=4) }} {{ m() }}"),
            "1-d 1-2 4-3 -d");
  EXPECT_EQ(run_template(macro + "{{ m(1, 2, 3) }}"),
            "line 1: macro 'm' takes at most 2 arguments, 3 were given");
  EXPECT_EQ(run_template(macro + "{{ m(c=1) }}"), "line 1: macro 'm' has no parameter 'c'");
}

TEST(JinjaCalls, MacrosSeeTheTemplatesVariablesNotTheCallers) {
  EXPECT_EQ(run_template("{% macro m() %}{{ a }}{{ b is defined }}{% endmacro %}{% set a = 1 %}"
                         "{% for b in [1] %}{{ m() }}{% endfor %}"),
            "1False");
}

TEST(JinjaCalls, RangesAreBounded) {
  EXPECT_EQ(evaluate("range(2, 9, 3) | list"), "[2, 5, 8]");
  EXPECT_EQ(evaluate("range(3, 0, -1) | list"), "[3, 2, 1]");
  EXPECT_EQ(evaluate("range(0, 3, 0)"), "line 1: range's step must not be zero");
  EXPECT_EQ(evaluate("range(9999999)"), "line 1: range is longer than 100000");
}

TEST(JinjaCalls, WhatIsNoFunctionIsRefused) {
  EXPECT_EQ(evaluate("(1)(2)"), "line 1: int cannot be called");
  EXPECT_EQ(evaluate("raise_exception('no')"), "the chat template refuses these messages: no");
  EXPECT_EQ(evaluate("namespace(1)"), "line 1: namespace needs a dict, not int");
}

}  // namespace
}  // namespace plimsoll::jinja
