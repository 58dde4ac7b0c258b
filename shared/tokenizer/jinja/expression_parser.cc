#include "shared/tokenizer/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/filters.h"

namespace plimsoll::jinja {
namespace {

constexpr int kNestingMax = 60;  // brackets, conditions and statements inside each other
constexpr int kDepthMax = 250;   // of one expression's tree ("a + b + c + ...")

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::output_end:
      return "'}}'";
    default:
      return "'" + token.value + "'";
  }
}

}  // namespace

Token ExpressionParser::next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::at_symbol(std::string_view symbol) const {
  return peek().kind == TokenKind::symbol && peek().value == symbol;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return peek().kind == TokenKind::name && peek().value == name;
}

bool ExpressionParser::take_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  next();
  return true;
}

bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

Error ExpressionParser::error(const std::string& what) const {
  return invalid(fmt::format("line {}: {}", peek().line, what));
}

Error ExpressionParser::unexpected() const { return error("unexpected " + shown(peek())); }

Status ExpressionParser::expect_symbol(std::string_view symbol) {
  if (take_symbol(symbol)) return {};
  return error(fmt::format("expected '{}', found {}", symbol, shown(peek())));
}

Status ExpressionParser::expect(TokenKind kind) {
  if (peek().kind != kind) return unexpected();
  next();
  return {};
}

Result<std::string> ExpressionParser::expect_identifier(const char* what) {
  if (peek().kind != TokenKind::name) {
    return error(fmt::format("expected {}, found {}", what, shown(peek())));
  }
  return next().value;
}

Status ExpressionParser::check_nesting() const {
  if (nesting_ <= kNestingMax) return {};
  return error(fmt::format("nested deeper than {} levels", kNestingMax));
}

Result<ExpressionPtr> ExpressionParser::make(ExpressionKind kind, std::vector<ExpressionPtr> parts,
                                             std::string name) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = peek().line;
  made->name = std::move(name);
  for (const ExpressionPtr& part : parts) {
    if (part != nullptr) made->depth = std::max(made->depth, part->depth + 1);
  }
  made->parts = std::move(parts);
  if (made->depth > kDepthMax) {
    return error(fmt::format("an expression is deeper than {} operations", kDepthMax));
  }
  return made;
}

namespace {
template <typename... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> out;
  (out.push_back(std::move(parts)), ...);
  return out;
}
}  // namespace

Result<ExpressionPtr> ExpressionParser::expression() {
  const Nesting nesting(*this);
  TRY(check_nesting());
  ExpressionPtr value = TRY(logical_or());
  while (take_name("if")) {
    ExpressionPtr condition = TRY(logical_or());
    ExpressionPtr other;
    if (take_name("else")) other = TRY(expression());
    value = TRY(make(ExpressionKind::conditional,
                     parts_of(std::move(value), std::move(condition), std::move(other))));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::expression_without_condition() {
  const Nesting nesting(*this);
  TRY(check_nesting());
  ExpressionPtr first = TRY(logical_or());
  if (!at_symbol(",")) return first;
  std::vector<ExpressionPtr> parts = parts_of(std::move(first));
  while (take_symbol(",") && peek().kind != TokenKind::block_end) {
    parts.push_back(TRY(logical_or()));
  }
  return make(ExpressionKind::tuple, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::expression_or_tuple() {
  ExpressionPtr first = TRY(expression());
  if (!at_symbol(",")) return first;
  std::vector<ExpressionPtr> parts = parts_of(std::move(first));
  while (take_symbol(",")) {
    if (peek().kind == TokenKind::block_end || peek().kind == TokenKind::output_end ||
        at_symbol(")") || at_symbol("]") || at_symbol("=")) {
      break;
    }
    parts.push_back(TRY(expression()));
  }
  return make(ExpressionKind::tuple, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::target() {
  const bool bracket = take_symbol("(");
  std::vector<ExpressionPtr> names;
  bool tuple = false;
  do {
    if (peek().kind != TokenKind::name || at_name("in")) break;
    std::string variable = TRY(expect_identifier("a variable's name"));
    ExpressionPtr name = TRY(make(ExpressionKind::name, {}, std::move(variable)));
    if (take_symbol(".")) {
      std::string attribute = TRY(expect_identifier("an attribute's name"));
      name = TRY(make(ExpressionKind::attribute, parts_of(std::move(name)), std::move(attribute)));
    }
    names.push_back(std::move(name));
    if (at_symbol(",")) tuple = true;
  } while (take_symbol(","));
  if (names.empty()) return unexpected();
  if (bracket) TRY(expect_symbol(")"));
  if (!tuple) return std::move(names[0]);
  return make(ExpressionKind::tuple, std::move(names));
}

Result<ExpressionPtr> ExpressionParser::logical_or() {
  ExpressionPtr left = TRY(logical_and());
  while (take_name("or")) {
    ExpressionPtr right = TRY(logical_and());
    left = TRY(make(ExpressionKind::logical_or, parts_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::logical_and() {
  ExpressionPtr left = TRY(logical_not());
  while (take_name("and")) {
    ExpressionPtr right = TRY(logical_not());
    left = TRY(make(ExpressionKind::logical_and, parts_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::logical_not() {
  if (!take_name("not")) return comparison();
  const Nesting nesting(*this);
  TRY(check_nesting());
  ExpressionPtr value = TRY(logical_not());
  return make(ExpressionKind::logical_not, parts_of(std::move(value)));
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<=", ">=", "<", ">"};
  ExpressionPtr first = TRY(sum());
  std::vector<ExpressionPtr> parts = parts_of(std::move(first));
  std::vector<std::string> operators;
  while (true) {
    if (peek().kind == TokenKind::symbol &&
        std::find(kOperators.begin(), kOperators.end(), peek().value) != kOperators.end()) {
      operators.push_back(next().value);
    } else if (take_name("in")) {
      operators.emplace_back("in");
    } else if (at_name("not") && tokens_[at_ + 1].kind == TokenKind::name &&
               tokens_[at_ + 1].value == "in") {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(TRY(sum()));
  }
  if (operators.empty()) return std::move(parts[0]);
  ExpressionPtr made = TRY(make(ExpressionKind::comparison, std::move(parts)));
  made->operators = std::move(operators);
  return made;
}

Result<ExpressionPtr> ExpressionParser::sum() {
  ExpressionPtr left = TRY(concat());
  while (at_symbol("+") || at_symbol("-")) {
    std::string name = next().value;
    ExpressionPtr right = TRY(concat());
    left = TRY(make(ExpressionKind::arithmetic, parts_of(std::move(left), std::move(right)),
                    std::move(name)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::concat() {
  ExpressionPtr first = TRY(product());
  if (!at_symbol("~")) return first;
  std::vector<ExpressionPtr> parts = parts_of(std::move(first));
  while (take_symbol("~")) parts.push_back(TRY(product()));
  return make(ExpressionKind::concat, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::product() {
  ExpressionPtr left = TRY(power());
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    std::string name = next().value;
    ExpressionPtr right = TRY(power());
    left = TRY(make(ExpressionKind::arithmetic, parts_of(std::move(left), std::move(right)),
                    std::move(name)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::power() {
  ExpressionPtr left = TRY(unary(true));
  while (take_symbol("**")) {
    ExpressionPtr right = TRY(unary(true));
    left = TRY(make(ExpressionKind::arithmetic, parts_of(std::move(left), std::move(right)), "**"));
  }
  return left;
}

// Filters and tests bind tighter than every operator but apply to a sign's result: -x|abs is
// (-x)|abs.
Result<ExpressionPtr> ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (at_symbol("-") || at_symbol("+")) {
    const Nesting nesting(*this);
    TRY(check_nesting());
    const bool minus = next().value == "-";
    ExpressionPtr inner = TRY(unary(false));
    value = TRY(
        make(minus ? ExpressionKind::negate : ExpressionKind::plus, parts_of(std::move(inner))));
  } else {
    value = TRY(primary());
  }
  value = TRY(postfix(std::move(value)));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

Result<ExpressionPtr> ExpressionParser::literal_name() {
  const Token token = next();
  ExpressionPtr made = TRY(make(ExpressionKind::literal, {}));
  if (token.value == "true" || token.value == "True") {
    made->literal = true;
  } else if (token.value == "false" || token.value == "False") {
    made->literal = false;
  } else if (token.value != "none" && token.value != "None") {
    made->kind = ExpressionKind::name;
    made->name = token.value;
  }
  return made;
}

Result<ExpressionPtr> ExpressionParser::primary() {
  const Token& token = peek();
  switch (token.kind) {
    case TokenKind::name:
      return literal_name();
    case TokenKind::text: {
      std::string text;
      while (peek().kind == TokenKind::text) text += next().value;  // neighbours are joined
      ExpressionPtr made = TRY(make(ExpressionKind::literal, {}));
      made->literal = std::move(text);
      return made;
    }
    case TokenKind::integer:
    case TokenKind::real: {
      ExpressionPtr made = TRY(make(ExpressionKind::literal, {}));
      std::int64_t whole = 0;
      double fraction = 0;
      const char* end = token.value.data() + token.value.size();
      if (token.kind == TokenKind::integer) {
        if (std::from_chars(token.value.data(), end, whole).ec != std::errc()) {
          return error(fmt::format("{} is too large", token.value));
        }
        made->literal = whole;
      } else {
        if (std::from_chars(token.value.data(), end, fraction).ec != std::errc()) {
          return error(fmt::format("{} is too large", token.value));
        }
        made->literal = fraction;
      }
      next();
      return made;
    }
    default:
      break;
  }
  if (take_symbol("(")) return bracketed(")", ExpressionKind::tuple);
  if (take_symbol("[")) return bracketed("]", ExpressionKind::list);
  if (take_symbol("{")) return dict();
  return unexpected();
}

Result<ExpressionPtr> ExpressionParser::bracketed(const char* close, ExpressionKind kind) {
  std::vector<ExpressionPtr> parts;
  bool comma = false;
  while (!at_symbol(close)) {
    parts.push_back(TRY(expression()));
    if (!take_symbol(",")) break;
    comma = true;
  }
  TRY(expect_symbol(close));
  if (kind == ExpressionKind::tuple && parts.size() == 1 && !comma) return std::move(parts[0]);
  return make(kind, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::dict() {
  std::vector<ExpressionPtr> parts;
  while (!at_symbol("}")) {
    parts.push_back(TRY(expression()));
    TRY(expect_symbol(":"));
    parts.push_back(TRY(expression()));
    if (!take_symbol(",")) break;
  }
  TRY(expect_symbol("}"));
  return make(ExpressionKind::dict, std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr value) {
  while (true) {
    if (take_symbol(".")) {
      if (peek().kind == TokenKind::integer) {  // list.0
        ExpressionPtr index = TRY(primary());
        value = TRY(make(ExpressionKind::item, parts_of(std::move(value), std::move(index))));
      } else {
        std::string name = TRY(expect_identifier("an attribute's name"));
        value = TRY(make(ExpressionKind::attribute, parts_of(std::move(value)), std::move(name)));
      }
    } else if (take_symbol("[")) {
      value = TRY(subscript(std::move(value)));
    } else if (take_symbol("(")) {
      value = TRY(make(ExpressionKind::call, parts_of(std::move(value))));
      TRY(arguments(*value));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::subscript(ExpressionPtr object) {
  std::vector<ExpressionPtr> bounds;  // start, stop, step
  bool slice = false;
  ExpressionPtr part;
  if (!at_symbol(":")) part = TRY(expression());
  while (at_symbol(":") && bounds.size() < 2) {
    next();
    slice = true;
    bounds.push_back(std::move(part));
    part = nullptr;
    if (!at_symbol(":") && !at_symbol("]")) part = TRY(expression());
  }
  TRY(expect_symbol("]"));
  if (!slice) return make(ExpressionKind::item, parts_of(std::move(object), std::move(part)));
  bounds.push_back(std::move(part));
  bounds.resize(3);
  return make(ExpressionKind::slice, parts_of(std::move(object), std::move(bounds[0]),
                                              std::move(bounds[1]), std::move(bounds[2])));
}

Status ExpressionParser::arguments(Expression& call) {
  while (!at_symbol(")")) {
    if (at_symbol("*") || at_symbol("**")) return error("* and ** in arguments are not supported");
    const bool named = peek().kind == TokenKind::name &&
                       tokens_[at_ + 1].kind == TokenKind::symbol && tokens_[at_ + 1].value == "=";
    std::string name;
    if (named) {
      name = next().value;
      next();
    } else if (!call.named.empty()) {
      return error("an argument without a name follows one with a name");
    }
    ExpressionPtr value = TRY(expression());
    call.depth = std::max(call.depth, value->depth + 1);
    if (named) {
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      call.parts.push_back(std::move(value));
    }
    if (!take_symbol(",")) break;
  }
  return expect_symbol(")");
}

Result<ExpressionPtr> ExpressionParser::filters(ExpressionPtr value) {
  while (take_symbol("|")) value = TRY(filter(std::move(value)));
  return value;
}

Result<ExpressionPtr> ExpressionParser::filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (take_symbol("|")) {
      value = TRY(filter(std::move(value)));
    } else if (take_name("is")) {
      value = TRY(test(std::move(value)));
    } else if (take_symbol("(")) {  // the result of a filter, called
      value = TRY(make(ExpressionKind::call, parts_of(std::move(value))));
      TRY(arguments(*value));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::filter(ExpressionPtr value) {
  std::string name = TRY(expect_identifier("a filter's name"));
  if (!is_filter(name)) return error(fmt::format("the filter '{}' is not supported", name));
  ExpressionPtr made =
      TRY(make(ExpressionKind::filter, parts_of(std::move(value)), std::move(name)));
  if (take_symbol("(")) TRY(arguments(*made));
  return made;
}

bool ExpressionParser::starts_test_argument() const {
  const Token& token = peek();
  switch (token.kind) {
    case TokenKind::text:
    case TokenKind::integer:
    case TokenKind::real:
      return true;
    case TokenKind::symbol:
      return token.value == "[" || token.value == "{";
    case TokenKind::name:
      return token.value != "else" && token.value != "or" && token.value != "and" &&
             token.value != "is" && token.value != "if" && token.value != "in" &&
             token.value != "not";
    default:
      return false;
  }
}

Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr value) {
  const bool negated = take_name("not");
  std::string name = TRY(expect_identifier("a test's name"));
  if (!is_test(name)) return error(fmt::format("the test '{}' is not supported", name));
  ExpressionPtr made = TRY(make(ExpressionKind::test, parts_of(std::move(value)), std::move(name)));
  if (take_symbol("(")) {
    TRY(arguments(*made));
  } else if (starts_test_argument()) {
    ExpressionPtr argument = TRY(primary());
    argument = TRY(postfix(std::move(argument)));
    made->depth = std::max(made->depth, argument->depth + 1);
    made->parts.push_back(std::move(argument));
  }
  if (!negated) return made;
  return make(ExpressionKind::logical_not, parts_of(std::move(made)));
}

}  // namespace plimsoll::jinja
