#include "shared/tokenizer/jinja/parser.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

std::string refusal(const std::string& source) {
  const auto body = parse(source);
  return body ? "accepted" : body.error().message;
}

TEST(JinjaParser, BuildsTheTree) {
  const auto body = parse("a{% if x %}b{% elif y %}c{% else %}d{% endif %}{{ z }}");
  ASSERT_TRUE(body);
  ASSERT_EQ(body->size(), 3U);
  EXPECT_EQ((*body)[1]->kind, StatementKind::branch);
  EXPECT_EQ((*body)[1]->conditions.size(), 2U);
  EXPECT_EQ((*body)[1]->bodies.size(), 3U);
  EXPECT_EQ((*body)[2]->value->name, "z");
}

TEST(JinjaParser, UnfinishedBlocksAreNamed) {
  EXPECT_EQ(refusal("{% for x in y %}"), "line 1: the block that begins here has no endfor");
  EXPECT_EQ(refusal("{% macro m() %}"), "line 1: the block that begins here has no endmacro");
  EXPECT_EQ(refusal("{% if x %}{% else %}{% elif y %}{% endif %}"), "line 1: unknown block 'elif'");
}

TEST(JinjaParser, WhatIsOutsideTheSubsetIsNamed) {
  EXPECT_EQ(refusal("{% extends 'x' %}"), "line 1: the block 'extends' is not supported");
  EXPECT_EQ(refusal("{% call m() %}{% endcall %}"), "line 1: the block 'call' is not supported");
  EXPECT_EQ(refusal("{% frobnicate %}"), "line 1: unknown block 'frobnicate'");
  EXPECT_EQ(refusal("{% filter nothing %}{% endfilter %}"),
            "line 1: the filter 'nothing' is not supported");
}

TEST(JinjaParser, LoopControlNeedsALoop) {
  EXPECT_EQ(refusal("{% break %}"), "line 1: break outside of a loop");
  EXPECT_EQ(refusal("{% for x in y %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}"),
            "line 1: continue outside of a loop");
  EXPECT_EQ(refusal("{% for x in y %}{% if x %}{% break %}{% endif %}{% endfor %}"), "accepted");
}

TEST(JinjaParser, BoundsSizeAndDepth) {
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, ' ')),
            "the chat template has 1048577 bytes; at most 1048576 work");
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "{% if x %}";
  EXPECT_EQ(refusal(nested), "line 1: nested deeper than 60 levels");
}

}  // namespace
}  // namespace plimsoll::jinja
