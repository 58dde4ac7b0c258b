// Interpreter: runs a template's syntax tree over variables.
//
// One object a run. Work, memory, recursion and output are bounded (value.h); every error is
// Code::invalid and names the line.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/tokenizer/jinja/arguments.h"
#include "shared/tokenizer/jinja/ast.h"
#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;  // names live in the tree
};

class Interpreter {
 public:
  // `unix_time`: what strftime_now formats, in local time.
  Interpreter(Limits limits, std::int64_t unix_time);

  // `variables`: an object that outlives this. Once.
  Result<Text> run(const Body& body, const Json& variables);

  // For filters, tests and methods.
  Heap& heap() { return heap_; }
  Result<Value> attribute(const Value& object, std::string_view name);
  Result<Value> item(const Value& object, const Value& key);
  // What a loop runs over: items, keys, characters.
  Result<std::vector<Value>> items(const Value& value);

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

  // interpreter.cc
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> execute_loop(const Statement& statement);
  Result<Flow> execute_round(const Statement& statement, const Value& value);
  Result<Flow> execute_scope(const Statement& statement);
  Result<Text> capture(const Body& body);
  Result<std::vector<Value>> chosen_items(const Statement& loop);
  Status assign(const Expression& target, const Value& value);
  void set(std::string_view name, const Value& value);
  const Value* look_up(std::string_view name);
  Scope* enter(Scope* parent);  // the new scope; the old one comes back
  Status append(const Text& text);
  Status step();

  // evaluator.cc
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_inner(const Expression& expression);
  Result<Value> literal(const Expression& expression);
  Result<Value> name(const Expression& expression);
  Result<Value> collection(const Expression& expression);
  Result<Value> slice(const Expression& expression);
  Result<Value> sign(const Expression& expression);
  Result<Value> concat(const Expression& expression);
  Result<Value> comparison(const Expression& expression);
  Result<bool> contains(const Value& container, const Value& part);
  Result<Arguments> arguments(const Expression& call);
  Result<Value> with_hole(const Expression& filters, const Value& hole);

  // calls.cc
  Result<Value> call(const Expression& expression);
  Result<Value> call_macro(const Callable& macro, const Arguments& given);
  Status bind(const Statement& macro, const Arguments& given);
  Result<Value> call_function(const std::string& name, const Arguments& given);

  Heap heap_;
  std::int64_t unix_time_;
  std::deque<Scope> scopes_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  Value hole_;  // the text that a filter block or assignment block filters
  int depth_ = 0;
};

}  // namespace plimsoll::jinja
