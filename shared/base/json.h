// Json: a JSON value that keeps the order of object keys. Parsing and printing are nlohmann-json's
// (json.cc); this header stays light because nearly everything includes it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/result.h"

namespace plimsoll {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;
  using Binary = std::vector<std::uint8_t>;  // MessagePack only; JSON has no such type

  Json() = default;
  // NOLINTBEGIN(google-explicit-constructor): values are written as literals where they are made.
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<std::int64_t>(value)) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::uint64_t value);  // above 2^63-1 it becomes a double, as JSON readers do
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  Json(Binary value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)
  static Json object(std::initializer_list<Member> members = {}) { return Object(members); }
  static Json array(std::initializer_list<Json> items = {}) { return Array(items); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_binary() const { return std::holds_alternative<Binary>(value_); }
  const char* type_name() const;  // "null", "boolean", "integer", "number", "string", ...

  // REQUIRES: the value has that type (as_double also takes an integer).
  bool as_bool() const { return std::get<bool>(value_); }
  std::int64_t as_int() const { return std::get<std::int64_t>(value_); }
  double as_double() const;
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }
  const Binary& as_binary() const { return std::get<Binary>(value_); }

  // The member of an object, or nullptr where there is none (or this is no object).
  const Json* find(std::string_view key) const;
  // Sets a member, in place or at the end; a null value becomes an object first.
  Json& set(std::string_view key, Json value);
  // Appends to an array; a null value becomes an array first.
  Json& push(Json value);

  bool operator==(const Json& other) const = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, Binary>
      value_;
};

struct JsonLimits {
  std::size_t depth_max = 128;
  // Lists, objects and what is in them. A value takes some 40 bytes, of a text that may be 2.
  std::size_t values_max = 1'000'000;
};
// Between our own processes: the scores of a long prompt are many numbers.
inline constexpr JsonLimits kMessagePackLimits{.depth_max = 128, .values_max = 64'000'000};

// Errors: Code::invalid with line and column. Duplicate keys keep the last. Invalid UTF-8 is
// refused.
Result<Json> parse_json(std::string_view text, JsonLimits limits = {});
// indent < 0: one line. Bytes that are not UTF-8 are replaced by U+FFFD. Integers print exactly,
// doubles with the shortest digits that read back the same.
std::string dump_json(const Json& value, int indent = -1);

std::string to_msgpack(const Json& value);
Result<Json> from_msgpack(std::span<const std::byte> bytes, JsonLimits limits = kMessagePackLimits);

}  // namespace plimsoll
