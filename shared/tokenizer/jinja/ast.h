// Ast: the syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace plimsoll::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind : std::uint8_t {
  literal,
  name,
  list,
  tuple,
  dict,         // parts: key, value, key, value, ...
  attribute,    // parts: object; name
  item,         // parts: object, index
  slice,        // parts: object, start, stop, step (each but the first may be null)
  call,         // parts: callee, arguments...; named
  filter,       // parts: value, arguments...; named; name
  test,         // parts: value, arguments...; name
  negate,       // parts: one
  plus,         // parts: one
  logical_not,  // parts: one
  logical_and,  // parts: two
  logical_or,   // parts: two
  arithmetic,   // parts: two; name is + - * / // % **
  concat,       // parts: two or more
  comparison,   // parts: n + 1; operators: n
  conditional,  // parts: then, condition, else (may be null)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 1;
  int depth = 1;  // of the tree below, for the limit on recursion
  std::string name;
  std::variant<std::monostate, bool, std::int64_t, double, std::string> literal;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

enum class StatementKind : std::uint8_t {
  text,
  output,
  branch,        // if, elif, else: conditions[i] with bodies[i]; one more body is the else
  loop,          // target, value, condition (may be null); bodies: loop, else
  assign,        // target = value
  assign_block,  // target = bodies[0], through value (a chain of filters, may be null)
  macro,         // name, parameters; bodies[0]
  filter_block,  // bodies[0] through value
  scope,         // bodies[0] in a scope of its own, with parameters (with, generation)
  break_loop,
  continue_loop,
};

struct Parameter {
  std::string name;
  ExpressionPtr value;  // a macro's default; may be null
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 1;
  std::string text;  // of a text; a macro's name
  ExpressionPtr value;
  ExpressionPtr target;  // a name, a tuple of names, or namespace.attribute
  ExpressionPtr condition;
  std::vector<ExpressionPtr> conditions;
  std::vector<Parameter> parameters;
  std::vector<Body> bodies;
};

}  // namespace plimsoll::jinja
