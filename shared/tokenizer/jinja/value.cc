#include "shared/tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace plimsoll::jinja {
namespace {

// Deeper values (a list inside itself) are cut off.
constexpr int kDepthMax = 100;

// A member with the room that its dict's vector keeps for more.
constexpr std::size_t kMemberBytes = 4 * sizeof(Value);

template <typename Compare>
bool compare_numbers(const Value& a, const Value& b, Compare compare) {
  if (a.is(Kind::real) || b.is(Kind::real)) return compare(a.as_real(), b.as_real());
  return compare(a.as_integer(), b.as_integer());
}

}  // namespace

double Value::as_real() const { return is(Kind::real) ? real : static_cast<double>(as_integer()); }

Value none() {
  Value value;
  value.kind = Kind::none;
  return value;
}

Value boolean(bool of, bool trusted) {
  Value value;
  value.kind = Kind::boolean;
  value.trusted = trusted;
  value.boolean = of;
  return value;
}

Value integer(std::int64_t of, bool trusted) {
  Value value;
  value.kind = Kind::integer;
  value.trusted = trusted;
  value.integer = of;
  return value;
}

Value real(double of, bool trusted) {
  Value value;
  value.kind = Kind::real;
  value.trusted = trusted;
  value.real = of;
  return value;
}

bool Heap::reserve(std::size_t bytes) {
  if (bytes > limits_.bytes_max || bytes_ + bytes > limits_.bytes_max) {
    bytes_ = limits_.bytes_max + 1;
  }
  return !exhausted();
}

Status Heap::work(std::size_t bytes) {
  charge(1 + bytes / 8);
  if (exhausted()) return exhaustion();
  return {};
}

Error Heap::exhaustion() const {
  if (bytes_ > limits_.bytes_max) {
    return invalid(fmt::format("the chat template needs more than {} MiB of text for this input",
                               limits_.bytes_max >> 20));
  }
  return invalid(
      fmt::format("the chat template takes more than {} steps for this input", limits_.steps_max));
}

Value Heap::text(Text text) {
  // Small texts cost their bookkeeping too.
  bytes_ += text.size() + 32;
  charge(text.size() / 32);
  Value value;
  value.kind = Kind::text;
  value.text = &texts_.emplace_back(std::move(text));
  return value;
}

Value Heap::text_checked(std::string_view bytes, bool trusted) {
  return text(Text(bytes, trusted));
}

Value Heap::undefined(std::string_view name) {
  Value value = text(name, true);
  value.kind = Kind::undefined;
  return value;
}

Value Heap::list(std::vector<Value> items, Kind kind) {
  bytes_ += items.size() * sizeof(Value) + 32;
  Value value;
  value.kind = kind;
  value.list = &lists_.emplace_back(List{std::move(items)});
  return value;
}

Value Heap::dict(Kind kind) {
  bytes_ += 32;
  Value value;
  value.kind = kind;
  value.dict = &dicts_.emplace_back();
  return value;
}

Value Heap::callable(Callable callable) {
  bytes_ += sizeof(Callable);
  Value value;
  value.kind = Kind::callable;
  value.callable = &callables_.emplace_back(std::move(callable));
  return value;
}

Value Heap::from_json(const Json& json, bool trusted) {
  charge(1);
  if (exhausted() || json.is_null() || json.is_binary()) return none();
  if (json.is_bool()) return boolean(json.as_bool(), trusted);
  if (json.is_integer()) return integer(json.as_int(), trusted);
  if (json.is_number()) return real(json.as_double(), trusted);
  if (json.is_string()) return text(json.as_string(), trusted);
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(from_json(item, trusted));
    return list(std::move(items));
  }
  const Value out = dict();
  for (const auto& [key, member] : json.as_object()) {  // keys of an object are distinct
    bytes_ += 2 * sizeof(Value);
    out.dict->members.emplace_back(text(key, trusted), from_json(member, trusted));
  }
  return out;
}

const char* kind_name(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType",  "bool",    "int",
                                           "float",     "str",       "list",    "tuple",
                                           "dict",      "Namespace", "function"};
  return kNames[static_cast<std::size_t>(value.kind)];
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean;
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
      return !value.text->empty();
    case Kind::list:
    case Kind::tuple:
      return !value.list->items.empty();
    case Kind::dict:
      return !value.dict->members.empty();
    case Kind::name_space:
    case Kind::callable:
      return true;
  }
  return false;
}

bool equal(Heap& heap, const Value& a, const Value& b, int depth) {
  heap.charge(1);
  if (heap.exhausted() || depth > kDepthMax) return false;
  if (a.is_number() && b.is_number()) {
    return compare_numbers(a, b, [](auto x, auto y) { return x == y; });
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      if (a.text->size() != b.text->size()) return false;
      heap.charge(a.text->size() / 32);
      return a.text->bytes() == b.text->bytes();
    case Kind::list:
    case Kind::tuple:
      return std::equal(
          a.list->items.begin(), a.list->items.end(), b.list->items.begin(), b.list->items.end(),
          [&](const Value& x, const Value& y) { return equal(heap, x, y, depth + 1); });
    case Kind::dict:
      if (a.dict->members.size() != b.dict->members.size()) return false;
      for (const auto& [key, member] : a.dict->members) {
        const Value* other = find_member(heap, *b.dict, key);
        if (other == nullptr || !equal(heap, member, *other, depth + 1)) return false;
      }
      return true;
    case Kind::callable:
      return a.callable == b.callable;
    default:
      return a.dict == b.dict;
  }
}

Result<bool> less(Heap& heap, const Value& a, const Value& b, int depth) {
  heap.charge(1);
  if (heap.exhausted()) return heap.exhaustion();
  if (a.is_number() && b.is_number()) {
    return compare_numbers(a, b, [](auto x, auto y) { return x < y; });
  }
  if (a.is(Kind::text) && b.is(Kind::text)) {
    heap.charge(std::min(a.text->size(), b.text->size()) / 32);
    return a.text->bytes() < b.text->bytes();  // bytes of UTF-8 sort as its code points do
  }
  if (a.is_list() && a.kind == b.kind && depth < kDepthMax) {
    const auto& x = a.list->items;
    const auto& y = b.list->items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(heap, x[i], y[i], depth + 1)) return less(heap, x[i], y[i], depth + 1);
    }
    return x.size() < y.size();
  }
  return invalid(fmt::format("'<' is not defined between {} and {}", kind_name(a), kind_name(b)));
}

const Value* find_member(Heap& heap, const Dict& dict, const Value& key) {
  if (key.is(Kind::text)) return find_member(heap, dict, key.text->bytes());
  heap.charge(dict.members.size());
  if (heap.exhausted()) return nullptr;
  for (const auto& [name, member] : dict.members) {
    if (equal(heap, name, key)) return &member;
  }
  return nullptr;
}

const Value* find_member(Heap& heap, const Dict& dict, std::string_view key) {
  heap.charge(dict.members.size() / 4 + dict.members.size() * (key.size() / 32));
  if (heap.exhausted()) return nullptr;
  for (const auto& [name, member] : dict.members) {
    if (name.is(Kind::text) && name.text->bytes() == key) return &member;
  }
  return nullptr;
}

void set_member(Heap& heap, Dict& dict, const Value& key, const Value& value) {
  if (const Value* found = find_member(heap, dict, key)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  if (!heap.reserve(kMemberBytes)) return;
  heap.spend(kMemberBytes);
  dict.members.emplace_back(key, value);
}

}  // namespace plimsoll::jinja
