// ExpressionParser: the expressions of a template, by Jinja's precedence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/tokenizer/jinja/ast.h"
#include "shared/tokenizer/jinja/lexer.h"

namespace plimsoll::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // One expression; with commas outside of brackets it becomes a tuple.
  Result<ExpressionPtr> expression();
  Result<ExpressionPtr> expression_or_tuple();
  // An expression without a trailing "if", for the iterable of a loop.
  Result<ExpressionPtr> expression_without_condition();
  // A name, names with commas between, or namespace.attribute.
  Result<ExpressionPtr> target();
  // The filters behind `value`: | name(arguments) | ...
  Result<ExpressionPtr> filters(ExpressionPtr value);

  const Token& peek() const { return tokens_[at_]; }
  Token next();
  bool at_symbol(std::string_view symbol) const;
  bool at_name(std::string_view name) const;
  bool take_symbol(std::string_view symbol);
  bool take_name(std::string_view name);
  Status expect_symbol(std::string_view symbol);
  Status expect(TokenKind kind);
  Result<std::string> expect_identifier(const char* what);
  Error error(const std::string& what) const;
  Error unexpected() const;

  // Bounds recursion: one for every nested construct that is being parsed.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };
  Status check_nesting() const;

 private:
  Result<ExpressionPtr> make(ExpressionKind kind, std::vector<ExpressionPtr> parts,
                             std::string name = {});
  Result<ExpressionPtr> logical_or();
  Result<ExpressionPtr> logical_and();
  Result<ExpressionPtr> logical_not();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concat();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary(bool with_filters);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> literal_name();
  Result<ExpressionPtr> bracketed(const char* close, ExpressionKind kind);
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> postfix(ExpressionPtr value);
  Result<ExpressionPtr> subscript(ExpressionPtr object);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr value);
  Result<ExpressionPtr> filter(ExpressionPtr value);
  Result<ExpressionPtr> test(ExpressionPtr value);
  // Fills `call` with the arguments in parentheses; the opening one is taken already.
  Status arguments(Expression& call);
  bool starts_test_argument() const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace plimsoll::jinja
