#include "shared/tokenizer/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/expression_parser.h"
#include "shared/tokenizer/jinja/filters.h"
#include "shared/tokenizer/jinja/lexer.h"

namespace plimsoll::jinja {
namespace {

constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;

using EndNames = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : expressions_(std::move(tokens)) {}

  // Statements up to a block whose name is one of `ends`; that name is left in ended_by_.
  Result<Body> body(EndNames ends) {
    const ExpressionParser::Nesting nesting(expressions_);
    TRY(expressions_.check_nesting());
    const int opened = expressions_.peek().line;
    Body out;
    while (true) {
      const Token token = expressions_.next();
      switch (token.kind) {
        case TokenKind::data:
          out.push_back(make(StatementKind::text, token.line));
          out.back()->text = token.value;
          break;
        case TokenKind::output_begin:
          out.push_back(make(StatementKind::output, token.line));
          out.back()->value = TRY(expressions_.expression_or_tuple());
          TRY(expressions_.expect(TokenKind::output_end));
          break;
        case TokenKind::end:
          if (ends.size() == 0) return out;
          return invalid(fmt::format("line {}: the block that begins here has no {}", opened,
                                     *(ends.end() - 1)));
        default: {
          std::string name = TRY(expressions_.expect_identifier("a block's name"));
          if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
            ended_by_ = std::move(name);
            return out;
          }
          out.push_back(TRY(statement(name, token.line)));
        }
      }
    }
  }

 private:
  static StatementPtr make(StatementKind kind, int line) {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = line;
    return made;
  }

  Status end_block() { return expressions_.expect(TokenKind::block_end); }

  Result<StatementPtr> statement(const std::string& name, int line) {
    if (name == "if") return branch(line);
    if (name == "for") return loop(line);
    if (name == "set") return assign(line);
    if (name == "macro") return macro(line);
    if (name == "filter") return filter_block(line);
    if (name == "with") return with(line);
    if (name == "generation") return generation(line);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return expressions_.error(name + " outside of a loop");
      TRY(end_block());
      return make(name == "break" ? StatementKind::break_loop : StatementKind::continue_loop, line);
    }
    static constexpr std::array<std::string_view, 10> kOutside = {
        "include", "import",     "from", "extends", "block",
        "call",    "autoescape", "do",   "trans",   "debug"};
    const bool known = std::find(kOutside.begin(), kOutside.end(), name) != kOutside.end();
    return invalid(known ? fmt::format("line {}: the block '{}' is not supported", line, name)
                         : fmt::format("line {}: unknown block '{}'", line, name));
  }

  Result<StatementPtr> branch(int line) {
    StatementPtr made = make(StatementKind::branch, line);
    while (true) {
      made->conditions.push_back(TRY(expressions_.expression_or_tuple()));
      TRY(end_block());
      made->bodies.push_back(TRY(body({"elif", "else", "endif"})));
      if (ended_by_ != "elif") break;
    }
    if (ended_by_ == "else") {
      TRY(end_block());
      made->bodies.push_back(TRY(body({"endif"})));
    }
    TRY(end_block());
    return made;
  }

  Result<StatementPtr> loop(int line) {
    StatementPtr made = make(StatementKind::loop, line);
    made->target = TRY(expressions_.target());
    if (!expressions_.take_name("in")) return expressions_.error("expected 'in'");
    made->value = TRY(expressions_.expression_without_condition());
    if (expressions_.take_name("if")) made->condition = TRY(expressions_.expression());
    if (expressions_.at_name("recursive")) {
      return expressions_.error("recursive loops are not supported");
    }
    TRY(end_block());
    ++loops_;
    made->bodies.push_back(TRY(body({"else", "endfor"})));
    --loops_;
    if (ended_by_ == "else") {
      TRY(end_block());
      made->bodies.push_back(TRY(body({"endfor"})));
    }
    TRY(end_block());
    return made;
  }

  Result<StatementPtr> assign(int line) {
    StatementPtr made = make(StatementKind::assign, line);
    made->target = TRY(expressions_.target());
    if (expressions_.take_symbol("=")) {
      made->value = TRY(expressions_.expression_or_tuple());
      TRY(end_block());
      return made;
    }
    made->kind = StatementKind::assign_block;
    if (expressions_.at_symbol("|")) made->value = TRY(filter_chain());
    TRY(end_block());
    made->bodies.push_back(TRY(body({"endset"})));
    TRY(end_block());
    return made;
  }

  // Filters on the text of a block: their innermost value is left null.
  Result<ExpressionPtr> filter_chain() {
    auto hole = std::make_unique<Expression>();
    hole->kind = ExpressionKind::name;
    hole->name = "";
    return expressions_.filters(std::move(hole));
  }

  Result<StatementPtr> filter_block(int line) {
    StatementPtr made = make(StatementKind::filter_block, line);
    std::string name = TRY(expressions_.expect_identifier("a filter's name"));
    if (!is_filter(name)) {
      return expressions_.error(fmt::format("the filter '{}' is not supported", name));
    }
    auto hole = std::make_unique<Expression>();
    hole->kind = ExpressionKind::name;
    auto filter = std::make_unique<Expression>();
    filter->kind = ExpressionKind::filter;
    filter->line = line;
    filter->name = std::move(name);
    filter->depth = 2;
    filter->parts.push_back(std::move(hole));
    if (expressions_.at_symbol("(")) {
      return expressions_.error("a filter block's filter with arguments is not supported");
    }
    made->value = TRY(expressions_.filters(std::move(filter)));
    TRY(end_block());
    made->bodies.push_back(TRY(body({"endfilter"})));
    TRY(end_block());
    return made;
  }

  Result<StatementPtr> macro(int line) {
    StatementPtr made = make(StatementKind::macro, line);
    made->text = TRY(expressions_.expect_identifier("a macro's name"));
    TRY(expressions_.expect_symbol("("));
    while (!expressions_.at_symbol(")")) {
      Parameter parameter;
      parameter.name = TRY(expressions_.expect_identifier("a parameter's name"));
      if (expressions_.take_symbol("=")) {
        parameter.value = TRY(expressions_.expression());
      } else if (!made->parameters.empty() && made->parameters.back().value != nullptr) {
        return expressions_.error("a parameter without a default follows one with a default");
      }
      made->parameters.push_back(std::move(parameter));
      if (!expressions_.take_symbol(",")) break;
    }
    TRY(expressions_.expect_symbol(")"));
    TRY(end_block());
    const int outer_loops = std::exchange(loops_, 0);
    made->bodies.push_back(TRY(body({"endmacro"})));
    loops_ = outer_loops;
    if (expressions_.peek().kind == TokenKind::name) expressions_.next();  // {% endmacro name %}
    TRY(end_block());
    return made;
  }

  Result<StatementPtr> with(int line) {
    StatementPtr made = make(StatementKind::scope, line);
    while (expressions_.peek().kind != TokenKind::block_end) {
      Parameter parameter;
      parameter.name = TRY(expressions_.expect_identifier("a variable's name"));
      TRY(expressions_.expect_symbol("="));
      parameter.value = TRY(expressions_.expression());
      made->parameters.push_back(std::move(parameter));
      if (!expressions_.take_symbol(",")) break;
    }
    TRY(end_block());
    made->bodies.push_back(TRY(body({"endwith"})));
    TRY(end_block());
    return made;
  }

  // Marks an assistant's words for training; for a prompt it means nothing.
  Result<StatementPtr> generation(int line) {
    StatementPtr made = make(StatementKind::scope, line);
    TRY(end_block());
    made->bodies.push_back(TRY(body({"endgeneration"})));
    TRY(end_block());
    return made;
  }

  ExpressionParser expressions_;
  std::string ended_by_;
  int loops_ = 0;
};

}  // namespace

Result<Body> parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return invalid(fmt::format("the chat template has {} bytes; at most {} work", source.size(),
                               kSourceBytesMax));
  }
  Parser parser(TRY(tokenize(source)));
  return parser.body({});
}

}  // namespace plimsoll::jinja
