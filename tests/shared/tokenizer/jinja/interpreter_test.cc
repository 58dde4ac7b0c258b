#include "shared/tokenizer/jinja/interpreter.h"

#include <gtest/gtest.h>

#include "tests/shared/tokenizer/jinja/evaluate.h"

namespace plimsoll::jinja {
namespace {

TEST(JinjaInterpreter, ALoopsVariablesEndWithIt) {
  EXPECT_EQ(
      run_template("{% set a = 0 %}{% for i in [1, 2] %}{% set a = i %}{{ a }}{% endfor %}{{ a }}"),
      "120");
  EXPECT_EQ(run_template("{% for i in [1] %}{% endfor %}{{ i is defined }}{{ loop is defined }}"),
            "FalseFalse");
}

TEST(JinjaInterpreter, ANamespaceOutlivesLoops) {
  EXPECT_EQ(run_template("{% set n = namespace(a=0) %}{% for i in [1, 2] %}{% set n.a = n.a + i "
                         "%}{% endfor %}{{ n.a }}"),
            "3");
  EXPECT_EQ(run_template("{% set d = {} %}{% set d.a = 1 %}"),
            "line 1: cannot set 'd.a': only a namespace has attributes");
}

TEST(JinjaInterpreter, LoopsKnowTheirNeighbours) {
  EXPECT_EQ(run_template("{% for i in 'abc' %}{{ loop.previtem }}{{ i }}{{ loop.nextitem }}{{ "
                         "loop.revindex }} {% endfor %}"),
            "ab3 abc2 bc1 ");
}

TEST(JinjaInterpreter, InnerLoopsGiveTheOuterOneBack) {
  EXPECT_EQ(run_template(
                "{% for i in [1, 2] %}{% for j in [1] %}{% endfor %}{{ loop.index }}{% endfor %}"),
            "12");
}

TEST(JinjaInterpreter, UnpackingCountsItsTargets) {
  EXPECT_EQ(run_template("{% for a, b in [[1, 2, 3]] %}{% endfor %}"),
            "line 1: 3 values cannot be unpacked into 2 variables");
}

TEST(JinjaInterpreter, RecursionIsBounded) {
  EXPECT_EQ(run_template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "the chat template recurses deeper than 600 levels");
}

TEST(JinjaInterpreter, VariablesMustBeAnObject) {
  const auto body = parse("");
  EXPECT_FALSE(Interpreter({}, 0).run(*body, Json::array()));
}

}  // namespace
}  // namespace plimsoll::jinja
