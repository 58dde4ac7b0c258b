#include "shared/tokenizer/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "shared/base/json.h"
#include "shared/base/text.h"
#include "shared/tokenizer/jinja/sequences.h"

namespace plimsoll::jinja {
namespace {

struct Call {
  Interpreter& interpreter;
  Heap& heap;
  const Value& value;
  const Arguments& given;
};

// A dotted path of attributes and indices, as `attribute=` takes it: "function.name", "0".
Result<Value> attribute_path(Interpreter& interpreter, Value value, const Value& path) {
  if (path.is(Kind::integer)) return interpreter.item(value, path);
  if (!path.is(Kind::text)) return invalid("an attribute must be a str or an int");
  for (const std::string_view part : plimsoll::split(path.text->bytes(), '.')) {
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size();
    const Value key = is_index ? integer(index) : interpreter.heap().text(part, true);
    value = TRY(interpreter.item(value, key));
  }
  return value;
}

// The values themselves, or the attribute that the filter names of each.
Result<std::vector<Value>> keys_of(const Call& call, const std::vector<Value>& values,
                                   std::size_t place) {
  const Value* path = call.given.find(place, "attribute");
  if (path == nullptr || path->is(Kind::none)) return values;
  std::vector<Value> keys;
  for (const Value& value : values) {
    keys.push_back(TRY(attribute_path(call.interpreter, value, *path)));
  }
  return keys;
}

Result<Value> length(const Call& call) {
  const Value& value = call.value;
  switch (value.kind) {
    case Kind::undefined:
      return integer(0);
    case Kind::text:
      call.heap.charge(value.text->size() / 32);
      return integer(static_cast<std::int64_t>(count_characters(value.text->bytes())));
    case Kind::list:
    case Kind::tuple:
      return integer(static_cast<std::int64_t>(value.list->items.size()));
    case Kind::dict:
      return integer(static_cast<std::int64_t>(value.dict->members.size()));
    default:
      return invalid(fmt::format("{} has no length", kind_name(value)));
  }
}

Result<Value> tojson(const Call& call) {
  JsonStyle style;
  style.ascii = call.given.truth(0, "ensure_ascii", false);
  style.indent =
      static_cast<int>(std::clamp<std::int64_t>(TRY(call.given.integer(1, "indent", -1)), -1, 16));
  style.sorted = call.given.truth(3, "sort_keys", false);
  if (style.indent >= 0) style.item_separator = ",";
  if (const Value* separators = call.given.find(2, "separators");
      separators != nullptr && !separators->is(Kind::none)) {
    if (!separators->is_list() || separators->list->items.size() != 2) {
      return invalid("tojson: separators must be two texts");
    }
    style.item_separator = to_text(call.heap, separators->list->items[0]).bytes();
    style.key_separator = to_text(call.heap, separators->list->items[1]).bytes();
  }
  return to_json(call.heap, call.value, style);
}

Result<Value> from_json(const Call& call) {
  const Text text = to_text(call.heap, call.value);
  // A parsed value is many times as large as its shortest text ("[],").
  if (!call.heap.reserve(text.size() * 32)) return call.heap.exhaustion();
  const Json json = TRY_CONTEXT("from_json: ", parse_json(text.bytes(), {.depth_max = 64}));
  return call.heap.from_json(json);
}

Result<Value> trim_filter(const Call& call) {
  const Value* characters = call.given.find(0, "chars");
  const Text text = to_text(call.heap, call.value);
  if (characters == nullptr || characters->is(Kind::none)) {
    return call.heap.text(strip(text, std::nullopt, {}));
  }
  const std::string set = TRY(call.given.text(0, "chars", ""));
  TRY(call.heap.work(text.size() * (1 + set.size() / 32)));
  return call.heap.text(strip(text, set, {}));
}

Result<Value> default_filter(const Call& call) {
  const bool replaces = call.value.is(Kind::undefined) ||
                        (call.given.truth(1, "boolean", false) && !is_true(call.value));
  if (!replaces) return call.value;
  const Value* fallback = call.given.find(0, "default_value");
  return fallback != nullptr ? *fallback : call.heap.text("", true);
}

Result<Value> join_filter(const Call& call) {
  const std::vector<Value> values = TRY(call.interpreter.items(call.value));
  const Value* separator = call.given.find(0, "d");
  const Text text = separator != nullptr ? to_text(call.heap, *separator) : Text();
  return joined(call.heap, TRY(keys_of(call, values, 1)), text);
}

Result<Value> items_filter(const Call& call) {
  if (call.value.is(Kind::undefined)) return call.heap.list({});
  if (!call.value.is(Kind::dict)) {
    return invalid(fmt::format("items needs a dict, not {}", kind_name(call.value)));
  }
  call.heap.charge(call.value.dict->members.size());
  return item_pairs(call.heap, *call.value.dict);
}

Result<Value> list_filter(const Call& call) {
  return call.heap.list(TRY(call.interpreter.items(call.value)));
}

Result<Value> dictsort(const Call& call) {
  if (!call.value.is(Kind::dict)) {
    return invalid(fmt::format("dictsort needs a dict, not {}", kind_name(call.value)));
  }
  const std::string by = TRY(call.given.text(1, "by", "key"));
  const SortOrder order{call.given.truth(2, "reverse", false),
                        call.given.truth(0, "case_sensitive", false)};
  std::vector<Value> keys;
  for (const auto& [key, member] : call.value.dict->members) {
    keys.push_back(by == "value" ? member : key);
  }
  const Value pairs = item_pairs(call.heap, *call.value.dict);
  return call.heap.list(TRY(sorted(call.heap, pairs.list->items, std::move(keys), order)));
}

Result<Value> sort_filter(const Call& call) {
  const std::vector<Value> values = TRY(call.interpreter.items(call.value));
  const SortOrder order{call.given.truth(0, "reverse", false),
                        call.given.truth(1, "case_sensitive", false)};
  std::vector<Value> keys = TRY(keys_of(call, values, 2));
  return call.heap.list(TRY(sorted(call.heap, values, std::move(keys), order)));
}

Result<Value> extreme(const Call& call, bool greatest) {
  const std::vector<Value> values = TRY(call.interpreter.items(call.value));
  if (values.empty()) return call.heap.undefined("an item of an empty sequence");
  const SortOrder order{greatest, call.given.truth(0, "case_sensitive", false)};
  std::vector<Value> keys = TRY(keys_of(call, values, 1));
  return TRY(sorted(call.heap, values, std::move(keys), order)).front();
}

Result<Value> unique(const Call& call) {
  const std::vector<Value> values = TRY(call.interpreter.items(call.value));
  const std::vector<Value> keys = TRY(keys_of(call, values, 1));
  const bool case_sensitive = call.given.truth(0, "case_sensitive", false);
  std::vector<Value> seen;
  std::vector<Value> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value key = comparable(call.heap, keys[i], case_sensitive);
    const bool known = std::any_of(
        seen.begin(), seen.end(), [&](const Value& other) { return equal(call.heap, key, other); });
    if (call.heap.exhausted()) return call.heap.exhaustion();
    if (known) continue;
    seen.push_back(key);
    out.push_back(values[i]);
  }
  return call.heap.list(std::move(out));
}

// What select and map run over: nothing where the value is false, even none.
Result<std::vector<Value>> items_if_any(const Call& call) {
  if (!is_true(call.value)) return std::vector<Value>();
  return call.interpreter.items(call.value);
}

// select and reject, selectattr and rejectattr.
Result<Value> select(const Call& call, bool by_attribute, bool wanted) {
  const std::size_t test_place = by_attribute ? 1 : 0;
  const Value* path = by_attribute ? call.given.find(0, "attribute") : nullptr;
  if (by_attribute && path == nullptr) return invalid("selectattr needs an attribute");
  const std::string test = TRY(call.given.text(test_place, "test", ""));
  if (!test.empty() && !is_test(test))
    return invalid(
        fmt::format("unknown test '{}'", to_valid_utf8(std::string_view(test).substr(0, 64))));
  Arguments rest;
  for (std::size_t i = test_place + 1; i < call.given.positional.size(); ++i) {
    rest.positional.push_back(call.given.positional[i]);
  }
  std::vector<Value> out;
  for (const Value& value : TRY(items_if_any(call))) {
    call.heap.charge(1);
    if (call.heap.exhausted()) return call.heap.exhaustion();
    Value subject = value;
    if (path != nullptr) subject = TRY(attribute_path(call.interpreter, value, *path));
    bool holds = is_true(subject);
    if (!test.empty()) holds = TRY(apply_test(call.interpreter, test, subject, rest));
    if (holds == wanted) out.push_back(value);
  }
  return call.heap.list(std::move(out));
}

Result<Value> map(const Call& call) {
  std::vector<Value> out;
  const Value* path = call.given.find(SIZE_MAX, "attribute");
  const Value* fallback = call.given.find(SIZE_MAX, "default");
  const std::string filter = TRY(call.given.text(0, "filter", ""));
  if (path == nullptr && !is_filter(filter)) {
    return invalid(fmt::format("map: unknown filter '{}'",
                               to_valid_utf8(std::string_view(filter).substr(0, 64))));
  }
  Arguments rest;
  for (std::size_t i = 1; i < call.given.positional.size(); ++i) {
    rest.positional.push_back(call.given.positional[i]);
  }
  if (path == nullptr) rest.named = call.given.named;
  for (const Value& value : TRY(items_if_any(call))) {
    call.heap.charge(1);
    if (call.heap.exhausted()) return call.heap.exhaustion();
    if (path == nullptr) {
      out.push_back(TRY(apply_filter(call.interpreter, filter, value, rest)));
      continue;
    }
    const Value found = TRY(attribute_path(call.interpreter, value, *path));
    out.push_back(found.is(Kind::undefined) && fallback != nullptr ? *fallback : found);
  }
  return call.heap.list(std::move(out));
}

Result<Value> indent(const Call& call) {
  const Value* width = call.given.find(0, "width");
  const std::int64_t spaces =
      width != nullptr && width->is(Kind::text) ? 0 : TRY(call.given.integer(0, "width", 4));
  Text indention(
      std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(spaces, 0, 1000)), ' '), true);
  if (width != nullptr && width->is(Kind::text)) indention = *width->text;
  const bool blank = call.given.truth(2, "blank", false);
  Text text = to_text(call.heap, call.value);
  text.append("\n", true);
  const std::size_t parts = count_lines(text.bytes());
  if (!call.heap.reserve(text.size() * 2 + parts * kPartBytes) ||
      !call.heap.reserve(text.size() + parts * (indention.size() + 1))) {
    return call.heap.exhaustion();
  }
  const std::vector<Text> lines = split_lines(text);
  Text out;
  if (call.given.truth(1, "first", false)) out.append(indention);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", true);
    if (i > 0 && (blank || !lines[i].empty())) out.append(indention);
    out.append(lines[i]);
  }
  return call.heap.text(std::move(out));
}

Result<Value> replace_filter(const Call& call) {
  const Value* from = call.given.find(0, "old");
  const Value* to = call.given.find(1, "new");
  if (from == nullptr || to == nullptr) return invalid("replace needs two arguments");
  const std::int64_t count = TRY(call.given.integer(2, "count", -1));
  return replaced(call.heap, to_text(call.heap, call.value), to_text(call.heap, *from),
                  to_text(call.heap, *to), count < 0 ? SIZE_MAX : static_cast<std::size_t>(count));
}

// A number out of a text, or nothing.
std::optional<double> number_in(const Value& value) {
  if (value.is_number()) return value.as_real();
  if (!value.is(Kind::text)) return std::nullopt;
  std::string_view text = plimsoll::trim(value.text->bytes());
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Value> int_filter(const Call& call) {
  if (call.value.is(Kind::integer) || call.value.is(Kind::boolean)) {
    return integer(call.value.as_integer(), call.value.trusted);
  }
  if (call.value.is(Kind::text)) {
    const std::string_view text = plimsoll::trim(call.value.text->bytes());
    std::int64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (error == std::errc() && end == text.data() + text.size()) return integer(whole, false);
  }
  const auto number = number_in(call.value);
  if (!number || !(std::abs(*number) < 9e18)) {
    return integer(TRY(call.given.integer(0, "default", 0)));
  }
  return integer(static_cast<std::int64_t>(*number), false);
}

Result<Value> float_filter(const Call& call) {
  const auto number = number_in(call.value);
  if (number) return real(*number, false);
  const Value* fallback = call.given.find(0, "default");
  return fallback != nullptr ? *fallback : real(0.0);
}

Result<Value> abs_filter(const Call& call) {
  if (call.value.is(Kind::real)) return real(std::abs(call.value.real), call.value.trusted);
  if (!call.value.is_number()) return invalid("abs needs a number");
  const std::int64_t number = call.value.as_integer();
  if (number == INT64_MIN) return invalid("the number is too large");
  return integer(number < 0 ? -number : number, call.value.trusted);
}

Result<Value> end_of(const Call& call, bool first) {
  const std::vector<Value> values = TRY(call.interpreter.items(call.value));
  if (values.empty()) return call.heap.undefined("an item of an empty sequence");
  return first ? values.front() : values.back();
}

Result<Value> reverse(const Call& call) {
  std::vector<Value> values = TRY(call.interpreter.items(call.value));
  std::reverse(values.begin(), values.end());
  if (call.value.is(Kind::text)) return joined(call.heap, values, Text());
  return call.heap.list(std::move(values));
}

template <Text (*change)(const Text&)>
Result<Value> changed(const Call& call) {
  const Text text = to_text(call.heap, call.value);
  TRY(call.heap.work(case_work(text)));
  return call.heap.text(change(text));
}

Result<Value> as_text(const Call& call) {
  return call.value.is(Kind::text) ? call.value : call.heap.text(to_text(call.heap, call.value));
}

struct Filter {
  std::string_view name;
  Result<Value> (*apply)(const Call&);
};

constexpr Filter kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", changed<capitalize>},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", [](const Call& call) { return end_of(call, true); }},
    {"float", float_filter},
    {"from_json", from_json},
    {"indent", indent},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", [](const Call& call) { return end_of(call, false); }},
    {"length", length},
    {"list", list_filter},
    {"lower", changed<lower>},
    {"map", map},
    {"max", [](const Call& call) { return extreme(call, true); }},
    {"min", [](const Call& call) { return extreme(call, false); }},
    {"reject", [](const Call& call) { return select(call, false, false); }},
    {"rejectattr", [](const Call& call) { return select(call, true, false); }},
    {"replace", replace_filter},
    {"reverse", reverse},
    {"safe", as_text},
    {"select", [](const Call& call) { return select(call, false, true); }},
    {"selectattr", [](const Call& call) { return select(call, true, true); }},
    {"sort", sort_filter},
    {"string", as_text},
    {"title", changed<title>},
    {"tojson", tojson},
    {"trim", trim_filter},
    {"unique", unique},
    {"upper", changed<upper>},
};

const Filter* find_filter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Result<Value> apply_filter(Interpreter& interpreter, const std::string& name, const Value& value,
                           const Arguments& given) {
  const Filter* filter = find_filter(name);
  if (filter == nullptr) return invalid(fmt::format("unknown filter '{}'", name));
  TRY(charge_texts(interpreter.heap(), value, given));
  return filter->apply({interpreter, interpreter.heap(), value, given});
}

}  // namespace plimsoll::jinja
