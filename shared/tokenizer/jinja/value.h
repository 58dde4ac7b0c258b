// Value: what a template computes with, and Heap: the owner of all values of one run.
//
// Values behave as Python's: lists, dicts and namespaces are shared by reference. They live in the
// heap until the run ends, so a value is a plain handle. The heap also counts work and memory: a
// template comes from a model file and must not be able to stall or exhaust its host.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/tokenizer/jinja/text.h"

namespace plimsoll::jinja {

struct Statement;
struct Scope;
struct List;
struct Dict;
struct Callable;

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  name_space,
  callable,
};

struct Value {
  Kind kind = Kind::undefined;
  bool trusted = true;  // of scalars: not out of the variables; texts know it for each byte
  union {
    const Text* text = nullptr;  // of undefined: the missing name, or nullptr
    bool boolean;
    std::int64_t integer;
    double real;
    List* list;
    Dict* dict;  // also of a namespace
    const Callable* callable;
  };

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_number() const { return is(Kind::integer) || is(Kind::real) || is(Kind::boolean); }
  bool is_list() const { return is(Kind::list) || is(Kind::tuple); }
  bool is_dict() const { return is(Kind::dict) || is(Kind::name_space); }
  double as_real() const;
  std::int64_t as_integer() const { return is(Kind::boolean) ? (boolean ? 1 : 0) : integer; }
};

struct List {
  std::vector<Value> items;
};

struct Dict {
  std::vector<std::pair<Value, Value>> members;  // in order of insertion
};

// A macro, a method with its object, or a function that the interpreter knows by name.
struct Callable {
  std::string name;
  const Statement* macro = nullptr;
  Scope* closure = nullptr;  // of a macro
  Value self;                // of a method; undefined: a function
};

struct Limits {
  std::size_t bytes_max = std::size_t{64} << 20;  // of all texts of a run, input included
  std::size_t steps_max = 5'000'000;
};

// One part of a text that is cut: its two strings, twice while the list is made, and its value.
constexpr std::size_t kPartBytes = 144;

class Heap {
 public:
  explicit Heap(Limits limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Value text(Text text);
  Value text(std::string_view bytes, bool trusted) { return text_checked(bytes, trusted); }
  Value undefined(std::string_view name);
  Value list(std::vector<Value> items, Kind kind = Kind::list);
  Value dict(Kind kind = Kind::dict);
  Value callable(Callable callable);
  // Everything in it untrusted.
  Value from_json(const Json& json, bool trusted = false);

  // Counts work; a template may run until exhausted() is true.
  void charge(std::size_t steps) { steps_ += steps; }
  // Counts work on so many bytes before it is done; an error where the run is over.
  Status work(std::size_t bytes);
  // Counts memory that lives as long as the run.
  void spend(std::size_t bytes) { bytes_ += bytes; }
  // Whether so many more bytes are allowed; where not, the run is over.
  bool reserve(std::size_t bytes);
  bool exhausted() const { return bytes_ > limits_.bytes_max || steps_ > limits_.steps_max; }
  Error exhaustion() const;

 private:
  Value text_checked(std::string_view bytes, bool trusted);

  Limits limits_;
  std::size_t bytes_ = 0;
  std::size_t steps_ = 0;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Callable> callables_;
};

Value none();
Value boolean(bool value, bool trusted = true);
Value integer(std::int64_t value, bool trusted = true);
Value real(double value, bool trusted = true);

const char* kind_name(const Value& value);  // Python's: "str", "list", ...
bool is_true(const Value& value);
bool equal(Heap& heap, const Value& a, const Value& b, int depth = 0);
// Python's < ; an error where the two have no order.
Result<bool> less(Heap& heap, const Value& a, const Value& b, int depth = 0);

const Value* find_member(Heap& heap, const Dict& dict, const Value& key);
const Value* find_member(Heap& heap, const Dict& dict, std::string_view key);
void set_member(Heap& heap, Dict& dict, const Value& key, const Value& value);

// str(): what {{ value }} prints; an undefined value is empty.
Text to_text(Heap& heap, const Value& value);

struct JsonStyle {
  int indent = -1;  // negative: one line
  bool ascii = false;
  bool sorted = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(). Nothing in it is trusted.
Result<Value> to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace plimsoll::jinja
