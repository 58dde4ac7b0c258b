// The interpreter's calls: macros, methods and the functions that it knows by name.
#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/arithmetic.h"
#include "shared/tokenizer/jinja/interpreter.h"
#include "shared/tokenizer/jinja/methods.h"

namespace plimsoll::jinja {
namespace {

constexpr std::size_t kRangeMax = 100'000;

Result<Value> range(Heap& heap, const Arguments& given) {
  if (given.positional.empty()) return invalid("range needs an argument");
  const bool one = given.positional.size() == 1;
  const std::int64_t start = one ? 0 : TRY(given.integer(0, "start", 0));
  const std::int64_t stop = TRY(given.integer(one ? 0 : 1, "stop", 0));
  const std::int64_t step = TRY(given.integer(2, "step", 1));
  if (step == 0) return invalid("range's step must not be zero");
  std::vector<Value> values;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (values.size() >= kRangeMax) {
      return invalid(fmt::format("range is longer than {}", kRangeMax));
    }
    values.push_back(integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  heap.charge(values.size() / 8);
  return heap.list(std::move(values));
}

Result<Value> strftime_now(Heap& heap, const Arguments& given, std::int64_t unix_time) {
  const std::string format = TRY(given.text(0, "format", "%Y-%m-%d"));
  const std::time_t time = unix_time;
  std::tm local{};
  ::localtime_r(&time, &local);
  char buffer[512];
  const std::size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return heap.text(std::string_view(buffer, length), true);
}

}  // namespace

Result<Value> Interpreter::call(const Expression& expression) {
  const Value callee = TRY(evaluate(*expression.parts[0]));
  if (callee.is(Kind::undefined)) return undefined_error(callee);
  if (!callee.is(Kind::callable)) {
    return invalid(fmt::format("{} cannot be called", kind_name(callee)));
  }
  const Arguments given = TRY(arguments(expression));
  const Callable& callable = *callee.callable;
  if (callable.macro != nullptr) return call_macro(callable, given);
  if (!callable.self.is(Kind::undefined)) {
    return call_method(*this, callable.self, callable.name, given);
  }
  return call_function(callable.name, given);
}

Status Interpreter::bind(const Statement& macro, const Arguments& given) {
  const auto& parameters = macro.parameters;
  if (given.positional.size() > parameters.size()) {
    return invalid(fmt::format("macro '{}' takes at most {} arguments, {} were given", macro.text,
                               parameters.size(), given.positional.size()));
  }
  heap_.charge(parameters.size() * given.named.size() / 8);
  if (heap_.exhausted()) return heap_.exhaustion();
  for (const auto& [name, value] : given.named) {
    const bool known = std::any_of(
        parameters.begin(), parameters.end(),
        [&wanted = name](const Parameter& parameter) { return parameter.name == wanted; });
    if (!known) return invalid(fmt::format("macro '{}' has no parameter '{}'", macro.text, name));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (const Value* value = given.find(i, parameter.name)) {
      set(parameter.name, *value);
    } else if (parameter.value != nullptr) {
      set(parameter.name, TRY(evaluate(*parameter.value)));
    } else {
      set(parameter.name, heap_.undefined(parameter.name));
    }
  }
  return {};
}

Result<Value> Interpreter::call_macro(const Callable& macro, const Arguments& given) {
  Scope* outer = enter(macro.closure);
  auto bound = bind(*macro.macro, given);
  auto text = bound ? capture(macro.macro->bodies[0]) : Result<Text>(std::move(bound.error()));
  scope_ = outer;
  if (!text) return std::move(text.error());
  return heap_.text(std::move(*text));
}

Result<Value> Interpreter::call_function(const std::string& name, const Arguments& given) {
  TRY(charge_texts(heap_, Value(), given));
  if (name == "range") return range(heap_, given);
  if (name == "strftime_now") return strftime_now(heap_, given, unix_time_);
  if (name == "raise_exception") {
    const Value* message = given.find(0, "message");
    return invalid("the chat template refuses these messages: " +
                   (message != nullptr ? to_text(heap_, *message).bytes() : std::string()));
  }
  const Value out = heap_.dict(name == "namespace" ? Kind::name_space : Kind::dict);
  for (const Value& value : given.positional) {
    if (!value.is_dict()) {
      return invalid(fmt::format("{} needs a dict, not {}", name, kind_name(value)));
    }
    for (const auto& [key, member] : value.dict->members) {
      set_member(heap_, *out.dict, key, member);
    }
  }
  for (const auto& [key, value] : given.named) {
    set_member(heap_, *out.dict, heap_.text(key, true), value);
  }
  return out;
}

}  // namespace plimsoll::jinja
