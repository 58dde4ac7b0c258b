// The interpreter's expressions.
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/arithmetic.h"
#include "shared/tokenizer/jinja/filters.h"
#include "shared/tokenizer/jinja/interpreter.h"
#include "shared/tokenizer/jinja/methods.h"

namespace plimsoll::jinja {
namespace {

Error at_line(const Expression& expression, Error error) {
  // The innermost place is named already; limits and a template's own refusal have none.
  if (error.message.starts_with("line ") || error.message.starts_with("the chat template")) {
    return error;
  }
  error.message = fmt::format("line {}: {}", expression.line, error.message);
  return error;
}

// An index or bound as Python has it: negative ones count from the end.
std::optional<std::size_t> place_of(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

// Before a text's characters are listed: the work and the room that it takes.
Status reserve_starts(Heap& heap, const Text& text) {
  TRY(heap.work(text.size()));
  if (!heap.reserve(text.size() * sizeof(std::size_t))) return heap.exhaustion();
  return {};
}

struct Bounds {
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;
};

std::vector<std::size_t> places_of(const Bounds& bounds, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  const bool back = bounds.step < 0;
  const auto cut = [&](std::optional<std::int64_t> bound, std::int64_t fallback) {
    if (!bound) return fallback;
    const std::int64_t from_start = *bound < 0 ? *bound + count : *bound;
    return std::clamp(from_start, std::int64_t{back ? -1 : 0}, back ? count - 1 : count);
  };
  std::vector<std::size_t> places;
  std::int64_t i = cut(bounds.start, back ? count - 1 : 0);
  const std::int64_t stop = cut(bounds.stop, back ? -1 : count);
  while (back ? i > stop : i < stop) {
    places.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
  return places;
}

}  // namespace

Result<Value> Interpreter::evaluate(const Expression& expression) {
  ++depth_;
  auto stepped = step();
  auto value = stepped ? evaluate_inner(expression) : Result<Value>(std::move(stepped.error()));
  --depth_;
  if (!value) return at_line(expression, std::move(value.error()));
  return value;
}

Result<Value> Interpreter::evaluate_inner(const Expression& expression) {
  const auto& parts = expression.parts;
  switch (expression.kind) {
    case ExpressionKind::literal:
      return literal(expression);
    case ExpressionKind::name:
      return name(expression);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
    case ExpressionKind::dict:
      return collection(expression);
    case ExpressionKind::attribute: {
      const Value object = TRY(evaluate(*parts[0]));
      return attribute(object, expression.name);
    }
    case ExpressionKind::item: {
      const Value object = TRY(evaluate(*parts[0]));
      const Value key = TRY(evaluate(*parts[1]));
      return item(object, key);
    }
    case ExpressionKind::slice:
      return slice(expression);
    case ExpressionKind::call:
      return call(expression);
    case ExpressionKind::filter: {
      const Value value = TRY(evaluate(*parts[0]));
      const Arguments given = TRY(arguments(expression));
      return apply_filter(*this, expression.name, value, given);
    }
    case ExpressionKind::test: {
      const Value value = TRY(evaluate(*parts[0]));
      const Arguments given = TRY(arguments(expression));
      return boolean(TRY(apply_test(*this, expression.name, value, given)));
    }
    case ExpressionKind::negate:
    case ExpressionKind::plus:
      return sign(expression);
    case ExpressionKind::logical_not: {
      const Value value = TRY(evaluate(*parts[0]));
      return boolean(!is_true(value));
    }
    case ExpressionKind::logical_and:
    case ExpressionKind::logical_or: {
      const Value left = TRY(evaluate(*parts[0]));
      if (is_true(left) == (expression.kind == ExpressionKind::logical_or)) return left;
      return evaluate(*parts[1]);
    }
    case ExpressionKind::arithmetic: {
      const Value left = TRY(evaluate(*parts[0]));
      const Value right = TRY(evaluate(*parts[1]));
      return arithmetic(heap_, expression.name, left, right);
    }
    case ExpressionKind::concat:
      return concat(expression);
    case ExpressionKind::comparison:
      return comparison(expression);
    case ExpressionKind::conditional: {
      const Value condition = TRY(evaluate(*parts[1]));
      if (is_true(condition)) return evaluate(*parts[0]);
      return parts[2] != nullptr ? evaluate(*parts[2]) : Value();
    }
  }
  return internal_error("an expression of no kind");
}

Result<Value> Interpreter::literal(const Expression& expression) {
  const auto& literal = expression.literal;
  if (const auto* text = std::get_if<std::string>(&literal)) return heap_.text(*text, true);
  if (const auto* whole = std::get_if<std::int64_t>(&literal)) return integer(*whole);
  if (const auto* fraction = std::get_if<double>(&literal)) return real(*fraction);
  if (const auto* truth = std::get_if<bool>(&literal)) return boolean(*truth);
  return none();
}

Result<Value> Interpreter::name(const Expression& expression) {
  if (expression.name.empty()) return hole_;
  if (const Value* value = look_up(expression.name)) return *value;
  for (const std::string_view function :
       {"namespace", "raise_exception", "range", "strftime_now", "dict"}) {
    if (expression.name == function) {
      return heap_.callable({expression.name, nullptr, nullptr, Value()});
    }
  }
  return heap_.undefined(expression.name);
}

Result<Value> Interpreter::with_hole(const Expression& filters, const Value& hole) {
  const Value outer = std::exchange(hole_, hole);
  auto value = evaluate(filters);
  hole_ = outer;
  return value;
}

Result<Value> Interpreter::collection(const Expression& expression) {
  if (expression.kind != ExpressionKind::dict) {
    std::vector<Value> values;
    for (const ExpressionPtr& part : expression.parts) values.push_back(TRY(evaluate(*part)));
    const bool is_list = expression.kind == ExpressionKind::list;
    return heap_.list(std::move(values), is_list ? Kind::list : Kind::tuple);
  }
  const Value dict = heap_.dict();
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = TRY(evaluate(*expression.parts[i]));
    const Value value = TRY(evaluate(*expression.parts[i + 1]));
    set_member(heap_, *dict.dict, key, value);
  }
  return dict;
}

Result<Value> Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::undefined)) return undefined_error(object);
  if (is_method(object, name)) {
    return heap_.callable({std::string(name), nullptr, nullptr, object});
  }
  if (object.is_dict()) {
    if (const Value* member = find_member(heap_, *object.dict, name)) return *member;
  }
  return heap_.undefined(name);
}

Result<Value> Interpreter::item(const Value& object, const Value& key) {
  if (object.is(Kind::undefined)) return undefined_error(object);
  if (object.is_dict()) {
    if (const Value* member = find_member(heap_, *object.dict, key)) return *member;
  }
  if (key.is(Kind::integer) || key.is(Kind::boolean)) {
    if (object.is_list()) {
      const auto& values = object.list->items;
      if (const auto place = place_of(key.as_integer(), values.size())) return values[*place];
    } else if (object.is(Kind::text)) {
      TRY(reserve_starts(heap_, *object.text));
      const auto starts = character_starts(object.text->bytes());
      if (const auto place = place_of(key.as_integer(), starts.size() - 1)) {
        return heap_.text(object.text->sub(starts[*place], starts[*place + 1] - starts[*place]));
      }
    }
  }
  if (key.is(Kind::text) && is_method(object, key.text->bytes())) {
    return heap_.callable({key.text->bytes(), nullptr, nullptr, object});
  }
  return heap_.undefined(to_text(heap_, key).bytes());
}

Result<Value> Interpreter::slice(const Expression& expression) {
  const Value object = TRY(evaluate(*expression.parts[0]));
  std::optional<std::int64_t> given[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] == nullptr) continue;
    const Value bound = TRY(evaluate(*expression.parts[i + 1]));
    if (bound.is(Kind::none)) continue;
    if (!bound.is(Kind::integer) && !bound.is(Kind::boolean)) {
      return invalid(fmt::format("a slice's bounds must be int, not {}", kind_name(bound)));
    }
    given[i] = bound.as_integer();
  }
  if (object.is(Kind::undefined)) return undefined_error(object);
  if (!object.is_list() && !object.is(Kind::text)) {
    return invalid(fmt::format("{} cannot be sliced", kind_name(object)));
  }
  const Bounds bounds{given[0], given[1], given[2].value_or(1)};
  if (bounds.step == 0) return invalid("a slice's step must not be zero");
  if (object.is_list()) {
    std::vector<Value> values;
    TRY(heap_.work(object.list->items.size()));
    if (!heap_.reserve(object.list->items.size() * 2 * sizeof(Value))) return heap_.exhaustion();
    for (const std::size_t place : places_of(bounds, object.list->items.size())) {
      values.push_back(object.list->items[place]);
    }
    return heap_.list(std::move(values), object.kind);
  }
  TRY(reserve_starts(heap_, *object.text));
  const auto starts = character_starts(object.text->bytes());
  Text text;
  for (const std::size_t place : places_of(bounds, starts.size() - 1)) {
    text.append(object.text->sub(starts[place], starts[place + 1] - starts[place]));
  }
  return heap_.text(std::move(text));
}

Result<Value> Interpreter::sign(const Expression& expression) {
  const Value value = TRY(evaluate(*expression.parts[0]));
  const Value minus = TRY(negated(value));
  return expression.kind == ExpressionKind::plus ? value : minus;
}

Result<Value> Interpreter::concat(const Expression& expression) {
  Text out;
  for (const ExpressionPtr& part : expression.parts) {
    const Value value = TRY(evaluate(*part));
    out.append(to_text(heap_, value));
    if (!heap_.reserve(out.size())) return heap_.exhaustion();
  }
  return heap_.text(std::move(out));
}

Result<bool> Interpreter::contains(const Value& container, const Value& part) {
  switch (container.kind) {
    case Kind::undefined:
      return false;
    case Kind::text:
      if (!part.is(Kind::text)) {
        return invalid(fmt::format("'in <str>' needs a str on its left, not {}", kind_name(part)));
      }
      TRY(heap_.work(container.text->size() + part.text->size()));
      return position_of(container.text->bytes(), part.text->bytes()).has_value();
    case Kind::list:
    case Kind::tuple:
      return std::any_of(container.list->items.begin(), container.list->items.end(),
                         [&](const Value& value) { return equal(heap_, value, part); });
    case Kind::dict:
      return find_member(heap_, *container.dict, part) != nullptr;
    default:
      return invalid(fmt::format("'in' is not defined for {}", kind_name(container)));
  }
}

Result<Value> Interpreter::comparison(const Expression& expression) {
  Value left = TRY(evaluate(*expression.parts[0]));
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& operation = expression.operators[i];
    const Value right = TRY(evaluate(*expression.parts[i + 1]));
    bool holds = false;
    if (operation == "==" || operation == "!=") {
      holds = equal(heap_, left, right) == (operation == "==");
    } else if (operation == "in" || operation == "not in") {
      holds = TRY(contains(right, left)) == (operation == "in");
    } else {
      if (left.is(Kind::undefined)) return undefined_error(left);
      if (right.is(Kind::undefined)) return undefined_error(right);
      const bool strictly =
          TRY(operation[0] == '>' ? less(heap_, right, left) : less(heap_, left, right));
      holds = strictly || (operation.size() == 2 && equal(heap_, left, right));
    }
    if (!holds) return boolean(false);
    left = right;
  }
  return boolean(true);
}

Result<std::vector<Value>> Interpreter::items(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return std::vector<Value>();
    case Kind::list:
    case Kind::tuple:
      TRY(heap_.work(value.list->items.size()));
      return value.list->items;
    case Kind::dict: {
      TRY(heap_.work(value.dict->members.size()));
      std::vector<Value> keys;
      for (const auto& [key, member] : value.dict->members) keys.push_back(key);
      return keys;
    }
    case Kind::text: {
      std::vector<Value> characters;
      TRY(reserve_starts(heap_, *value.text));
      const auto starts = character_starts(value.text->bytes());
      if (!heap_.reserve(starts.size() * kPartBytes)) return heap_.exhaustion();
      for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        characters.push_back(heap_.text(value.text->sub(starts[i], starts[i + 1] - starts[i])));
      }
      return characters;
    }
    default:
      return invalid(fmt::format("{} is not iterable", kind_name(value)));
  }
}

Result<Arguments> Interpreter::arguments(const Expression& call) {
  Arguments out;
  for (std::size_t i = 1; i < call.parts.size(); ++i) {
    out.positional.push_back(TRY(evaluate(*call.parts[i])));
  }
  for (const auto& [name, part] : call.named) {
    out.named.emplace_back(name, TRY(evaluate(*part)));
  }
  return out;
}

}  // namespace plimsoll::jinja
