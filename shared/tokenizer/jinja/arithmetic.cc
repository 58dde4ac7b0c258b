#include "shared/tokenizer/jinja/arithmetic.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace plimsoll::jinja {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> too_large() { return invalid("the number is too large"); }

Result<Value> power(std::int64_t base, std::int64_t exponent, bool trusted) {
  if (exponent < 0) {
    if (base == 0) return invalid("division by zero");
    return real(std::pow(static_cast<double>(base), static_cast<double>(exponent)), trusted);
  }
  if (base == 0 || base == 1) return integer(exponent == 0 ? 1 : base, trusted);
  if (base == -1) return integer(exponent % 2 == 0 ? 1 : -1, trusted);
  std::int64_t out = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {  // overflows within 63 rounds
    if (__builtin_mul_overflow(out, base, &out)) return too_large();
  }
  return integer(out, trusted);
}

Result<Value> on_integers(const std::string& operation, std::int64_t a, std::int64_t b,
                          bool trusted) {
  std::int64_t out = 0;
  bool overflow = false;
  if (operation == "+") {
    overflow = __builtin_add_overflow(a, b, &out);
  } else if (operation == "-") {
    overflow = __builtin_sub_overflow(a, b, &out);
  } else if (operation == "*") {
    overflow = __builtin_mul_overflow(a, b, &out);
  } else if (operation == "**") {
    return power(a, b, trusted);
  } else if (b == 0) {
    return invalid("division by zero");
  } else if (operation == "/") {
    return real(static_cast<double>(a) / static_cast<double>(b), trusted);
  } else if (b == -1) {  // the one quotient that may overflow
    overflow = operation == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &out);
  } else {
    out = operation == "//" ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  }
  if (overflow) return too_large();
  return integer(out, trusted);
}

Result<Value> on_reals(const std::string& operation, double a, double b, bool trusted) {
  if (operation == "+") return real(a + b, trusted);
  if (operation == "-") return real(a - b, trusted);
  if (operation == "*") return real(a * b, trusted);
  if (operation == "**") return real(std::pow(a, b), trusted);
  if (b == 0) return invalid("division by zero");
  if (operation == "/") return real(a / b, trusted);
  const double quotient = std::floor(a / b);
  return real(operation == "//" ? quotient : a - quotient * b, trusted);
}

Result<Value> repeated(Heap& heap, const Value& many, std::int64_t count) {
  const std::size_t size =
      many.is(Kind::text) ? many.text->size() : many.list->items.size() * sizeof(Value);
  // Nothing, however often, is nothing.
  const std::size_t times = count < 0 || size == 0 ? 0 : static_cast<std::size_t>(count);
  if (times > (std::size_t{1} << 32) || !heap.reserve(times * (size + 1))) {
    heap.reserve(SIZE_MAX);
    return heap.exhaustion();
  }
  heap.charge(times);
  TRY(heap.work(times * size));
  Text text;
  std::vector<Value> values;
  for (std::size_t i = 0; i < times; ++i) {
    if (many.is(Kind::text)) {
      text.append(*many.text);
    } else {
      values.insert(values.end(), many.list->items.begin(), many.list->items.end());
    }
  }
  if (many.is(Kind::text)) return heap.text(std::move(text));
  return heap.list(std::move(values), many.kind);
}

}  // namespace

Error undefined_error(const Value& value) {
  const bool named = value.text != nullptr && !value.text->empty();
  return invalid(named ? fmt::format("'{}' is undefined", value.text->bytes())
                       : "a value is undefined");
}

Result<Value> negated(const Value& number) {
  if (number.is(Kind::undefined)) return undefined_error(number);
  if (!number.is_number()) return invalid(fmt::format("a sign before {}", kind_name(number)));
  if (number.is(Kind::real)) return real(-number.real, number.trusted);
  return on_integers("-", 0, number.as_integer(), number.trusted);
}

Result<Value> arithmetic(Heap& heap, const std::string& operation, const Value& left,
                         const Value& right) {
  if (left.is(Kind::undefined)) return undefined_error(left);
  if (right.is(Kind::undefined)) return undefined_error(right);
  if (left.is_number() && right.is_number()) {
    const bool trusted = left.trusted && right.trusted;
    if (left.is(Kind::real) || right.is(Kind::real)) {
      return on_reals(operation, left.as_real(), right.as_real(), trusted);
    }
    return on_integers(operation, left.as_integer(), right.as_integer(), trusted);
  }
  if (operation == "+" && left.is(Kind::text) && right.is(Kind::text)) {
    if (!heap.reserve(left.text->size() + right.text->size())) return heap.exhaustion();
    TRY(heap.work(left.text->size() + right.text->size()));
    Text sum = *left.text;
    sum.append(*right.text);
    return heap.text(std::move(sum));
  }
  if (operation == "+" && left.is_list() && left.kind == right.kind) {
    const std::size_t count = left.list->items.size() + right.list->items.size();
    TRY(heap.work(count * sizeof(Value)));
    if (!heap.reserve(count * sizeof(Value))) return heap.exhaustion();
    std::vector<Value> sum = left.list->items;
    sum.insert(sum.end(), right.list->items.begin(), right.list->items.end());
    return heap.list(std::move(sum), left.kind);
  }
  const bool counted_left = left.is(Kind::integer);
  const Value& many = counted_left ? right : left;
  const Value& count = counted_left ? left : right;
  if (operation == "*" && count.is(Kind::integer) && (many.is(Kind::text) || many.is_list())) {
    return repeated(heap, many, count.integer);
  }
  return invalid(fmt::format("'{}' is not defined between {} and {}", operation, kind_name(left),
                             kind_name(right)));
}

}  // namespace plimsoll::jinja
