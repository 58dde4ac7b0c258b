#include "shared/tokenizer/jinja/methods.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/sequences.h"

namespace plimsoll::jinja {
namespace {

constexpr std::array<std::string_view, 17> kTextMethods = {
    "strip",    "lstrip",  "rstrip", "split", "splitlines", "startswith",
    "endswith", "upper",   "lower",  "title", "capitalize", "find",
    "count",    "replace", "format", "join",  "isdigit"};
constexpr std::array<std::string_view, 6> kListMethods = {"append", "extend", "insert",
                                                          "pop",    "index",  "count"};
constexpr std::array<std::string_view, 8> kDictMethods = {"items", "keys",   "values",     "get",
                                                          "pop",   "update", "setdefault", "copy"};

template <std::size_t size>
bool holds(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<const Text*> needed_text(const Arguments& given, std::size_t place, const char* what) {
  const Value* value = given.find(place, what);
  if (value == nullptr) return invalid(fmt::format("argument '{}' is missing", what));
  if (!value->is(Kind::text)) {
    return invalid(fmt::format("argument '{}' must be a str, not {}", what, kind_name(*value)));
  }
  return value->text;
}

Result<std::size_t> times_max(const Arguments& given, std::size_t place, const char* name) {
  const std::int64_t count = TRY(given.integer(place, name, -1));
  return count < 0 ? SIZE_MAX : static_cast<std::size_t>(count);
}

Value list_of(Heap& heap, std::vector<Text> texts) {
  std::vector<Value> values;
  values.reserve(texts.size());
  for (Text& text : texts) values.push_back(heap.text(std::move(text)));
  return heap.list(std::move(values));
}

// Before a text is cut: each part costs more than its bytes.
Status reserve_parts(Heap& heap, const Text& text, std::size_t parts) {
  if (!heap.reserve(text.size() * 2 + parts * kPartBytes)) return heap.exhaustion();
  return {};
}

Result<Value> split_method(Heap& heap, const Text& text, const Arguments& given) {
  const std::size_t count = TRY(times_max(given, 1, "maxsplit"));
  const auto splits = count == SIZE_MAX ? std::nullopt : std::optional(count);
  const Value* separator = given.find(0, "sep");
  if (separator == nullptr || separator->is(Kind::none)) {
    TRY(reserve_parts(heap, text, std::min(count_words(text.bytes()), count)));
    return list_of(heap, split_at_spaces(text, splits));
  }
  const Text* wanted = TRY(needed_text(given, 0, "sep"));
  if (wanted->empty()) return invalid("split needs a separator that is not empty");
  TRY(reserve_parts(heap, text, std::min(count_parts(text.bytes(), wanted->bytes()), count)));
  return list_of(heap, split(text, wanted->bytes(), splits));
}

// startswith and endswith take a text or a tuple of them.
Result<Value> affix_method(Heap& heap, const Text& text, const std::string& name,
                           const Arguments& given) {
  const Value* value = given.find(0, "prefix");
  if (value == nullptr) return invalid(name + " needs an argument");
  const std::vector<Value> one = {*value};
  for (const Value& affix : value->is(Kind::tuple) ? value->list->items : one) {
    if (!affix.is(Kind::text)) {
      return invalid(fmt::format("{} needs a str, not {}", name, kind_name(affix)));
    }
    const std::string& part = affix.text->bytes();
    TRY(heap.work(std::min(part.size(), text.size())));
    if (name == "startswith" ? text.bytes().starts_with(part) : text.bytes().ends_with(part)) {
      return boolean(true);
    }
  }
  return boolean(false);
}

Result<Value> strip_method(Heap& heap, const Text& text, const std::string& name,
                           const Arguments& given) {
  const Strip sides{.left = name != "rstrip", .right = name != "lstrip"};
  const Value* characters = given.find(0, "chars");
  if (characters == nullptr || characters->is(Kind::none)) {
    return heap.text(strip(text, std::nullopt, sides));
  }
  const Text* set = TRY(needed_text(given, 0, "chars"));
  TRY(heap.work(text.size() * (1 + set->size() / 32)));
  return heap.text(strip(text, set->bytes(), sides));
}

// "{} and {name}".format(...): without format specifications.
Result<Value> format_method(Heap& heap, const Text& text, const Arguments& given) {
  const std::string& bytes = text.bytes();
  Text out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool doubled = i + 1 < bytes.size() && bytes[i + 1] == bytes[i];
    if (bytes[i] != '{' && bytes[i] != '}') {
      const std::size_t end = std::min(bytes.find_first_of("{}", i), bytes.size());
      out.append(text.sub(i, end - i));
      i = end - 1;
      continue;
    }
    if (doubled) {
      out.append(text.sub(i++, 1));
      continue;
    }
    const std::size_t end = bytes.find('}', i);
    if (bytes[i] == '}' || end == std::string::npos) return invalid("format: a single brace");
    const std::string field = bytes.substr(i + 1, end - i - 1);
    const bool is_number =
        !field.empty() && field.size() < 4 &&
        std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::size_t place = field.empty() ? next++ : is_number ? std::stoul(field) : SIZE_MAX;
    const Value* value = given.find(place, field);
    if (value == nullptr)
      return invalid(fmt::format("format: the field '{}' is not supported or has no value", field));
    out.append(to_text(heap, *value));
    if (!heap.reserve(out.size())) return heap.exhaustion();
    i = end;
  }
  return heap.text(std::move(out));
}

Result<Value> replace_method(Heap& heap, const Text& text, const Arguments& given) {
  const Text* from = TRY(needed_text(given, 0, "old"));
  const Text* to = TRY(needed_text(given, 1, "new"));
  return replaced(heap, text, *from, *to, TRY(times_max(given, 2, "count")));
}

Result<Value> join_method(Interpreter& interpreter, const Text& separator, const Arguments& given) {
  const Value* value = given.find(0, "iterable");
  if (value == nullptr) return invalid("join needs an argument");
  return joined(interpreter.heap(), TRY(interpreter.items(*value)), separator);
}

Result<Value> text_method(Interpreter& interpreter, const Text& text, const std::string& name,
                          const Arguments& given) {
  Heap& heap = interpreter.heap();
  const bool maps_case =
      name == "upper" || name == "lower" || name == "title" || name == "capitalize";
  if (maps_case) TRY(heap.work(case_work(text)));
  if (name.ends_with("strip")) return strip_method(heap, text, name, given);
  if (name == "split") return split_method(heap, text, given);
  if (name == "startswith" || name == "endswith") return affix_method(heap, text, name, given);
  if (name == "format") return format_method(heap, text, given);
  if (name == "replace") return replace_method(heap, text, given);
  if (name == "join") return join_method(interpreter, text, given);
  if (name == "upper") return heap.text(upper(text));
  if (name == "lower") return heap.text(lower(text));
  if (name == "title") return heap.text(title(text));
  if (name == "capitalize") return heap.text(capitalize(text));
  if (name == "isdigit") {
    const auto& bytes = text.bytes();
    return boolean(!bytes.empty() && std::all_of(bytes.begin(), bytes.end(),
                                                 [](char c) { return c >= '0' && c <= '9'; }));
  }
  if (name == "splitlines") {
    TRY(reserve_parts(heap, text, count_lines(text.bytes())));
    return list_of(heap, split_lines(text));
  }
  const Text* part = TRY(needed_text(given, 0, "sub"));
  if (name == "count") {
    if (part->empty())
      return integer(static_cast<std::int64_t>(count_characters(text.bytes())) + 1);
    std::int64_t count = 0;
    for (auto at = position_of(text.bytes(), part->bytes()); at;
         at = position_of(text.bytes(), part->bytes(), *at + part->size())) {
      ++count;
    }
    return integer(count);
  }
  const auto at = position_of(text.bytes(), part->bytes());
  if (!at) return integer(-1);
  return integer(
      static_cast<std::int64_t>(count_characters(std::string_view(text.bytes()).substr(0, *at))));
}

// Items that a list grows by, with the room that its vector keeps for more.
Status spend_items(Heap& heap, std::size_t count) {
  heap.spend(count * 2 * sizeof(Value));
  if (heap.exhausted()) return heap.exhaustion();
  return {};
}

Result<Value> list_method(Interpreter& interpreter, List& list, const std::string& name,
                          const Arguments& given) {
  Heap& heap = interpreter.heap();
  auto& items = list.items;
  const Value* first = given.find(0, "object");
  if (name == "pop") {
    const std::int64_t size = static_cast<std::int64_t>(items.size());
    std::int64_t index = TRY(given.integer(0, "index", -1));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return invalid("pop: the list has no such item");
    heap.charge(items.size() / 32);
    const Value value = items[static_cast<std::size_t>(index)];
    items.erase(items.begin() + index);
    return value;
  }
  if (first == nullptr) return invalid(name + " needs an argument");
  if (name == "append") {
    TRY(spend_items(heap, 1));
    items.push_back(*first);
    return none();
  }
  if (name == "extend") {
    const std::vector<Value> more = TRY(interpreter.items(*first));
    TRY(spend_items(heap, more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return none();
  }
  if (name == "insert") {
    const auto size = static_cast<std::int64_t>(items.size());
    std::int64_t index = TRY(given.integer(0, "index", 0));
    if (index < 0) index += size;
    const Value* value = given.find(1, "object");
    if (value == nullptr) return invalid("insert needs two arguments");
    heap.charge(items.size() / 32);
    TRY(spend_items(heap, 1));
    items.insert(items.begin() + std::clamp(index, std::int64_t{0}, size), *value);
    return none();
  }
  const auto same = [&](const Value& value) { return equal(heap, value, *first); };
  if (name == "count") return integer(std::count_if(items.begin(), items.end(), same));
  const auto found = std::find_if(items.begin(), items.end(), same);
  if (found == items.end()) return invalid("index: the list has no such item");
  return integer(found - items.begin());
}

Result<Value> dict_method(Interpreter& interpreter, const Value& object, const std::string& name,
                          const Arguments& given) {
  Heap& heap = interpreter.heap();
  Dict& dict = *object.dict;
  TRY(heap.work(dict.members.size()));
  if (name == "items") return item_pairs(heap, dict);
  if (name == "keys" || name == "values") {
    std::vector<Value> values;
    for (const auto& [key, member] : dict.members) values.push_back(name == "keys" ? key : member);
    return heap.list(std::move(values));
  }
  if (name == "copy" || name == "update") {
    const Value target = name == "copy" ? heap.dict() : object;
    const Value* other = given.find(0, "other");
    const Value& source = name == "copy" || other == nullptr ? object : *other;
    if (!source.is_dict())
      return invalid(fmt::format("update needs a dict, not {}", kind_name(source)));
    const auto members = source.dict->members;
    for (const auto& [key, member] : members) set_member(heap, *target.dict, key, member);
    for (const auto& [key, member] : given.named) {
      set_member(heap, *target.dict, heap.text(key, true), member);
    }
    return name == "copy" ? target : none();
  }
  const Value* key = given.find(0, "key");
  if (key == nullptr) return invalid(name + " needs an argument");
  const Value* fallback = given.find(1, "default");
  const Value* member = find_member(heap, dict, *key);
  if (name == "get") return member != nullptr ? *member : fallback != nullptr ? *fallback : none();
  if (name == "setdefault") {
    if (member != nullptr) return *member;
    const Value value = fallback != nullptr ? *fallback : none();
    set_member(heap, dict, *key, value);
    return value;
  }
  if (member == nullptr) {
    if (fallback != nullptr) return *fallback;
    return invalid(fmt::format("pop: there is no key '{}'", to_text(heap, *key).bytes()));
  }
  const Value value = *member;
  std::erase_if(dict.members, [&](const auto& entry) { return &entry.second == member; });
  return value;
}

// loop.cycle(a, b, ...)
Result<Value> cycle(const Value& loop, const Arguments& given) {
  if (given.positional.empty()) return invalid("cycle needs an argument");
  const auto index = static_cast<std::size_t>(loop.dict->members[0].second.as_integer());
  return given.positional[index % given.positional.size()];
}

}  // namespace

bool is_method(const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::text:
      return holds(kTextMethods, name);
    case Kind::list:
      return holds(kListMethods, name);
    case Kind::tuple:
      return name == "index" || name == "count";
    case Kind::dict:
      return holds(kDictMethods, name);
    default:
      return false;
  }
}

Result<Value> call_method(Interpreter& interpreter, const Value& object, const std::string& name,
                          const Arguments& given) {
  TRY(charge_texts(interpreter.heap(), object, given));
  switch (object.kind) {
    case Kind::text:
      return text_method(interpreter, *object.text, name, given);
    case Kind::list:
    case Kind::tuple:
      return list_method(interpreter, *object.list, name, given);
    case Kind::dict:
      return dict_method(interpreter, object, name, given);
    default:
      return cycle(object, given);
  }
}

}  // namespace plimsoll::jinja
