#include "shared/tokenizer/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace plimsoll::jinja {
namespace {

constexpr int kDepthMax = 600;  // statements, expressions and macro calls inside each other

// A scope with two or three variables; it may outlive its round as the closure of a macro.
constexpr std::size_t kScopeBytes = 128;
constexpr std::size_t kVariableBytes = 32;

// Their values come from the model's own files, not from a user.
constexpr std::array<std::string_view, 4> kTrustedVariables = {"bos_token", "eos_token",
                                                               "pad_token", "unk_token"};

// The members of `loop`, in the order in which they are updated.
constexpr std::array<std::string_view, 9> kLoopNames = {
    "index0", "index", "first", "last", "length", "revindex0", "revindex", "previtem", "nextitem"};

Value make_loop(Heap& heap) {
  const Value loop = heap.dict(Kind::name_space);
  for (const std::string_view name : kLoopNames) {
    loop.dict->members.emplace_back(heap.text(name, true), Value());
  }
  loop.dict->members.emplace_back(heap.text("cycle", true),
                                  heap.callable({"cycle", nullptr, nullptr, loop}));
  return loop;
}

void update_loop(Dict& loop, const std::vector<Value>& items, std::size_t i) {
  const auto index = static_cast<std::int64_t>(i);
  const auto count = static_cast<std::int64_t>(items.size());
  const std::array<Value, kLoopNames.size()> values = {
      integer(index),
      integer(index + 1),
      boolean(i == 0),
      boolean(i + 1 == items.size()),
      integer(count),
      integer(count - index - 1),
      integer(count - index),
      i > 0 ? items[i - 1] : Value(),
      i + 1 < items.size() ? items[i + 1] : Value(),
  };
  for (std::size_t k = 0; k < values.size(); ++k) loop.members[k].second = values[k];
}

}  // namespace

Interpreter::Interpreter(Limits limits, std::int64_t unix_time)
    : heap_(limits), unix_time_(unix_time), scope_(&scopes_.emplace_back()) {}

Result<Text> Interpreter::run(const Body& body, const Json& variables) {
  if (!variables.is_object()) return invalid("a chat template's variables must be an object");
  for (const auto& [name, value] : variables.as_object()) {
    const bool trusted = std::find(kTrustedVariables.begin(), kTrustedVariables.end(), name) !=
                         kTrustedVariables.end();
    set(name, heap_.from_json(value, trusted));
  }
  Text out;
  out_ = &out;
  TRY(execute(body));
  if (heap_.exhausted()) return heap_.exhaustion();
  return out;
}

Status Interpreter::step() {
  heap_.charge(1);
  if (heap_.exhausted()) return heap_.exhaustion();
  if (depth_ > kDepthMax) {
    return invalid(fmt::format("the chat template recurses deeper than {} levels", kDepthMax));
  }
  return {};
}

Status Interpreter::append(const Text& text) {
  out_->append(text);
  heap_.charge(text.size() / 32);
  if (!heap_.reserve(out_->size())) return heap_.exhaustion();
  return {};
}

Scope* Interpreter::enter(Scope* parent) {
  heap_.spend(kScopeBytes);
  return std::exchange(scope_, &scopes_.emplace_back(Scope{parent, {}}));
}

void Interpreter::set(std::string_view name, const Value& value) {
  heap_.charge(scope_->variables.size() * (1 + name.size() / 32) / 8);
  if (heap_.exhausted()) return;
  for (auto& [known, variable] : scope_->variables) {
    if (known == name) {
      variable = value;
      return;
    }
  }
  heap_.spend(kVariableBytes);
  scope_->variables.emplace_back(name, value);
}

const Value* Interpreter::look_up(std::string_view name) {
  std::size_t compared = 0;
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    compared += 1 + scope->variables.size() * (1 + name.size() / 32);
  }
  heap_.charge(compared / 8);
  if (heap_.exhausted()) return nullptr;
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const StatementPtr& statement : body) {
    ++depth_;
    auto flow = execute(*statement);
    --depth_;
    if (!flow || *flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  TRY(step());
  switch (statement.kind) {
    case StatementKind::text:
      TRY(append(Text(statement.text, true)));
      return Flow::normal;
    case StatementKind::output: {
      const Value value = TRY(evaluate(*statement.value));
      TRY(append(to_text(heap_, value)));
      return Flow::normal;
    }
    case StatementKind::branch:
      for (std::size_t i = 0; i < statement.conditions.size(); ++i) {
        const Value condition = TRY(evaluate(*statement.conditions[i]));
        if (is_true(condition)) return execute(statement.bodies[i]);
      }
      if (statement.bodies.size() == statement.conditions.size()) return Flow::normal;
      return execute(statement.bodies.back());
    case StatementKind::loop:
      return execute_loop(statement);
    case StatementKind::assign: {
      const Value value = TRY(evaluate(*statement.value));
      TRY(assign(*statement.target, value));
      return Flow::normal;
    }
    case StatementKind::assign_block:
    case StatementKind::filter_block: {
      Value value = heap_.text(TRY(capture(statement.bodies[0])));
      if (statement.value != nullptr) value = TRY(with_hole(*statement.value, value));
      if (statement.kind == StatementKind::assign_block) {
        TRY(assign(*statement.target, value));
      } else {
        TRY(append(to_text(heap_, value)));
      }
      return Flow::normal;
    }
    case StatementKind::macro:
      set(statement.text, heap_.callable({statement.text, &statement, scope_, Value()}));
      return Flow::normal;
    case StatementKind::scope:
      return execute_scope(statement);
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return internal_error("a statement of no kind");
}

Result<Interpreter::Flow> Interpreter::execute_scope(const Statement& statement) {
  std::vector<std::pair<std::string_view, Value>> variables;
  for (const Parameter& parameter : statement.parameters) {
    variables.emplace_back(parameter.name, TRY(evaluate(*parameter.value)));
  }
  Scope* outer = enter(scope_);
  scope_->variables = std::move(variables);
  auto flow = execute(statement.bodies[0]);
  scope_ = outer;
  return flow;
}

Result<Text> Interpreter::capture(const Body& body) {
  Text captured;
  Text* outer_out = std::exchange(out_, &captured);
  Scope* outer = enter(scope_);
  auto flow = execute(body);
  out_ = outer_out;
  scope_ = outer;
  if (!flow) return std::move(flow.error());
  return captured;
}

Status Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::name) {
    set(target.name, value);
    return {};
  }
  if (target.kind == ExpressionKind::attribute) {
    const std::string& name = target.parts[0]->name;
    const Value* object = look_up(name);
    if (object == nullptr || !object->is(Kind::name_space)) {
      return invalid(fmt::format("line {}: cannot set '{}.{}': only a namespace has attributes",
                                 target.line, name, target.name));
    }
    set_member(heap_, *object->dict, heap_.text(target.name, true), value);
    return {};
  }
  const std::vector<Value> parts = TRY(items(value));
  if (parts.size() != target.parts.size()) {
    return invalid(fmt::format("line {}: {} values cannot be unpacked into {} variables",
                               target.line, parts.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) TRY(assign(*target.parts[i], parts[i]));
  return {};
}

Result<std::vector<Value>> Interpreter::chosen_items(const Statement& loop) {
  const Value source = TRY(evaluate(*loop.value));
  auto all = items(source);
  if (!all) return invalid(fmt::format("line {}: {}", loop.line, all.error().message));
  if (loop.condition == nullptr) return all;
  std::vector<Value> chosen;
  for (const Value& value : *all) {
    Scope* outer = enter(scope_);
    auto holds = [&]() -> Result<Value> {
      TRY(assign(*loop.target, value));
      return evaluate(*loop.condition);
    }();
    scope_ = outer;
    if (!holds) return std::move(holds.error());
    if (is_true(*holds)) chosen.push_back(value);
  }
  return chosen;
}

Result<Interpreter::Flow> Interpreter::execute_round(const Statement& statement,
                                                     const Value& value) {
  TRY(step());
  TRY(assign(*statement.target, value));
  return execute(statement.bodies[0]);
}

Result<Interpreter::Flow> Interpreter::execute_loop(const Statement& statement) {
  const std::vector<Value> values = TRY(chosen_items(statement));
  if (values.empty()) {
    return statement.bodies.size() > 1 ? execute(statement.bodies[1]) : Flow::normal;
  }
  const Value loop = make_loop(heap_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Every round has its own scope: what it sets is gone after it.
    Scope* outer = enter(scope_);
    update_loop(*loop.dict, values, i);
    set("loop", loop);
    auto flow = execute_round(statement, values[i]);
    scope_ = outer;
    if (!flow) return flow;
    if (*flow == Flow::break_loop) break;
  }
  return Flow::normal;
}

}  // namespace plimsoll::jinja
