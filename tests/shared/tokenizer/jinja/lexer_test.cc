#include "shared/tokenizer/jinja/lexer.h"

#include <gtest/gtest.h>

namespace plimsoll::jinja {
namespace {

// The texts between tags, with | for a tag's tokens.
std::string data_of(std::string_view source) {
  const auto tokens = tokenize(source);
  if (!tokens) return tokens.error().message;
  std::string out;
  for (const Token& token : *tokens) {
    if (token.kind == TokenKind::data) out += token.value;
    if (token.kind == TokenKind::block_begin || token.kind == TokenKind::output_begin) out += '|';
  }
  return out;
}

std::string first_value(std::string_view source) {
  const auto tokens = tokenize(source);
  return tokens ? (*tokens)[1].value : tokens.error().message;
}

TEST(JinjaLexer, TrimsAfterBlocksAndStripsBeforeThem) {
  EXPECT_EQ(data_of("a\n  {% x %}\nb"), "a\n|b");
  EXPECT_EQ(data_of("a\n  {{ x }}\nb"), "a\n  |\nb");
  EXPECT_EQ(data_of("a  {% x %}\n\nb"), "a  |\nb");
  EXPECT_EQ(data_of("  {# c #}\nb"), "b");
}

TEST(JinjaLexer, SignsOverrule) {
  EXPECT_EQ(data_of("a \n {%- x -%} \n b"), "a|b");
  EXPECT_EQ(data_of("a\n  {%+ x +%}\nb"), "a\n  |\nb");
  EXPECT_EQ(data_of("a {{- x -}} b"), "a|b");
}

TEST(JinjaLexer, OneNewlineAtTheEndIsNoText) {
  EXPECT_EQ(data_of("a\n\n"), "a\n");
  EXPECT_EQ(data_of("a\r\nb\r"), "a\nb");
}

TEST(JinjaLexer, RawTextIsText) {
  EXPECT_EQ(data_of("{% raw %}{{ x }}{% y %}{% endraw %}z"), "{{ x }}{% y %}z");
  EXPECT_EQ(data_of("{% raw %}x"), "line 1: raw has no endraw");
}

TEST(JinjaLexer, ReadsLiterals) {
  EXPECT_EQ(first_value(R"({{ 'a\n\x41\u00e9\'\q' }})"), "a\nAé'\\q");
  EXPECT_EQ(first_value("{{ 1_000 }}"), "1000");
  EXPECT_EQ(first_value("{{ 1.5e-3 }}"), "1.5e-3");
  EXPECT_EQ(first_value("{{ '}}' }}"), "}}");
}

TEST(JinjaLexer, ErrorsNameTheLine) {
  EXPECT_EQ(data_of("\n{{ x"), "line 2: the tag has no end");
  EXPECT_EQ(data_of("{# x"), "line 1: the comment has no end");
  EXPECT_EQ(data_of("\n\n{{ $ }}"), "line 3: unexpected character '$'");
  EXPECT_EQ(data_of("{{ (] }}"), "line 1: unexpected ']'");
  EXPECT_EQ(data_of("{{ '\\ud800' }}"), "line 1: the escape \\u is not a character");
  EXPECT_EQ(data_of("{{ 1a }}"), "line 1: a number runs into a name");
}

TEST(JinjaLexer, CountsLines) {
  const auto tokens = tokenize("a\n{% x\n %}\n{{ y }}");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->at(1).line, 2);
  EXPECT_EQ(tokens->at(4).line, 4);
}

}  // namespace
}  // namespace plimsoll::jinja
