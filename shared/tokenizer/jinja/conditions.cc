// Tests: `value is name(...)`.
#include <cmath>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/filters.h"

namespace plimsoll::jinja {
namespace {

using Check = bool (*)(const Value&);
// Of two values; an error where they have no order.
using Compare = Result<bool> (*)(Heap&, const Value&, const Value&);

// Python's `number % 2 == rest`.
bool has_rest(const Value& number, int rest) {
  if (number.is(Kind::real)) return std::fabs(std::fmod(number.real, 2.0)) == rest;
  return number.is_number() && (number.as_integer() % 2 != 0) == (rest != 0);
}

struct UnaryTest {
  std::string_view name;
  Check check;
};

constexpr UnaryTest kUnary[] = {
    {"defined", [](const Value& v) { return !v.is(Kind::undefined); }},
    {"undefined", [](const Value& v) { return v.is(Kind::undefined); }},
    {"none", [](const Value& v) { return v.is(Kind::none); }},
    {"string", [](const Value& v) { return v.is(Kind::text); }},
    {"mapping", [](const Value& v) { return v.is(Kind::dict); }},
    {"iterable",
     [](const Value& v) {
       return v.is(Kind::undefined) || v.is(Kind::text) || v.is_list() || v.is(Kind::dict);
     }},
    {"sequence",
     [](const Value& v) {
       return v.is(Kind::undefined) || v.is(Kind::text) || v.is_list() || v.is(Kind::dict);
     }},
    {"boolean", [](const Value& v) { return v.is(Kind::boolean); }},
    {"true", [](const Value& v) { return v.is(Kind::boolean) && v.boolean; }},
    {"false", [](const Value& v) { return v.is(Kind::boolean) && !v.boolean; }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"integer", [](const Value& v) { return v.is(Kind::integer); }},
    {"float", [](const Value& v) { return v.is(Kind::real); }},
    {"callable", [](const Value& v) { return v.is(Kind::callable); }},
    {"lower",
     [](const Value& v) {
       return v.is(Kind::text) && has_case(*v.text) && lower(*v.text).bytes() == v.text->bytes();
     }},
    {"upper",
     [](const Value& v) {
       return v.is(Kind::text) && has_case(*v.text) && upper(*v.text).bytes() == v.text->bytes();
     }},
    {"odd", [](const Value& v) { return has_rest(v, 1); }},
    {"even", [](const Value& v) { return has_rest(v, 0); }},
};

struct BinaryTest {
  std::string_view name;
  Compare compare;
};

Result<bool> same(Heap& heap, const Value& a, const Value& b) { return equal(heap, a, b); }
Result<bool> other(Heap& heap, const Value& a, const Value& b) { return !equal(heap, a, b); }
Result<bool> before(Heap& heap, const Value& a, const Value& b) { return less(heap, a, b); }
Result<bool> after(Heap& heap, const Value& a, const Value& b) { return less(heap, b, a); }
Result<bool> not_after(Heap& heap, const Value& a, const Value& b) {
  return !TRY(less(heap, b, a));
}
Result<bool> not_before(Heap& heap, const Value& a, const Value& b) {
  return !TRY(less(heap, a, b));
}

Result<bool> divisible(Heap&, const Value& a, const Value& b) {
  if (!a.is(Kind::integer) || !b.is(Kind::integer) || b.integer == 0) {
    return invalid("divisibleby needs two numbers, the second not zero");
  }
  return b.integer == -1 || a.integer % b.integer == 0;
}

Result<bool> member(Heap& heap, const Value& a, const Value& b) {
  if (b.is(Kind::text) && a.is(Kind::text)) {
    return position_of(b.text->bytes(), a.text->bytes()).has_value();
  }
  if (b.is(Kind::dict)) return find_member(heap, *b.dict, a) != nullptr;
  if (!b.is_list()) return invalid(fmt::format("'in' is not defined for {}", kind_name(b)));
  for (const Value& value : b.list->items) {
    if (equal(heap, value, a)) return true;
  }
  return false;
}

constexpr BinaryTest kBinary[] = {
    {"eq", same},       {"equalto", same}, {"==", same},
    {"sameas", same},   {"ne", other},     {"!=", other},
    {"lt", before},     {"<", before},     {"lessthan", before},
    {"gt", after},      {">", after},      {"greaterthan", after},
    {"le", not_after},  {"<=", not_after}, {"ge", not_before},
    {">=", not_before}, {"in", member},    {"divisibleby", divisible},
};

}  // namespace

bool is_test(std::string_view name) {
  for (const UnaryTest& test : kUnary) {
    if (test.name == name) return true;
  }
  for (const BinaryTest& test : kBinary) {
    if (test.name == name) return true;
  }
  return false;
}

Result<bool> apply_test(Interpreter& interpreter, const std::string& name, const Value& value,
                        const Arguments& given) {
  for (const UnaryTest& test : kUnary) {
    if (test.name != name) continue;
    const bool reads = value.is(Kind::text) && (name == "lower" || name == "upper");
    if (reads) TRY(interpreter.heap().work(3 * case_work(*value.text)));
    return test.check(value);
  }
  for (const BinaryTest& test : kBinary) {
    if (test.name != name) continue;
    if (given.positional.empty()) return invalid(fmt::format("test '{}' needs a value", name));
    TRY(charge_texts(interpreter.heap(), value, given));
    return test.compare(interpreter.heap(), value, given.positional[0]);
  }
  return invalid(fmt::format("unknown test '{}'", name));
}

}  // namespace plimsoll::jinja
