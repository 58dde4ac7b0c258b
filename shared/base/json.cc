#include "shared/base/json.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

using Library = nlohmann::ordered_json;

// Builds a Json from the library's events, so that no second tree is made.
class Builder : public nlohmann::json_sax<Library> {
 public:
  explicit Builder(JsonLimits limits) : limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(std::uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& value) override {
    return add(Json(Json::Binary(value.begin(), value.end())));
  }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& value) override {
    keys_.back() = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    position_ = position;
    what_ = failure.what();
    return false;
  }

  Json root;
  std::size_t position() const { return position_; }
  const std::string& what() const { return what_; }

 private:
  bool count() {
    if (++values_ <= limits_.values_max) return true;
    what_ = fmt::format("more than {} values", limits_.values_max);
    return false;
  }
  bool add(Json value) {
    if (!count()) return false;
    put(std::move(value));
    return true;
  }
  void put(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push(std::move(value));
    } else {
      open_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
    }
  }
  bool open(Json value) {
    if (open_.size() >= limits_.depth_max) {
      what_ = fmt::format("nested deeper than {} levels", limits_.depth_max);
      return false;
    }
    if (!count()) return false;
    open_.push_back(std::move(value));
    keys_.emplace_back();
    return true;
  }
  // At the place of the first, with the value of the last. Linear in the number of members: a body
  // may have a million of them.
  static void keep_last_of_each_key(Json::Object& members) {
    std::unordered_map<std::string_view, std::size_t> places;
    places.reserve(members.size());
    Json::Object kept;
    kept.reserve(members.size());
    for (auto& [key, value] : members) {
      const auto [place, is_new] = places.try_emplace(key, kept.size());
      if (is_new) {
        kept.emplace_back(key, std::move(value));
      } else {
        kept[place->second].second = std::move(value);
      }
    }
    members = std::move(kept);
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    if (done.is_object()) keep_last_of_each_key(done.as_object());
    put(std::move(done));
    return true;
  }

  JsonLimits limits_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;
  std::size_t values_ = 0;
  std::size_t position_ = 0;
  std::string what_;
};

// "line 3, column 14" of a byte position that counts from 1.
std::string place(std::string_view text, std::size_t position) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i + 1 < position && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return fmt::format("line {}, column {}", line, column);
}

// The library's words without its own prefix "[json.exception.parse_error.101] ...".
std::string reason(const std::string& what) {
  const std::size_t start = what.rfind("syntax error");
  if (start != std::string::npos) return what.substr(start);
  const std::size_t bracket = what.find("] ");
  return bracket == std::string::npos ? what : what.substr(bracket + 2);
}

Library to_library(const Json& value) {
  if (value.is_null()) return nullptr;
  if (value.is_bool()) return value.as_bool();
  if (value.is_integer()) return value.as_int();
  if (value.is_number()) return value.as_double();
  if (value.is_string()) return value.as_string();
  if (value.is_binary()) return Library::binary(value.as_binary());
  if (value.is_array()) {
    Library out = Library::array();
    for (const Json& item : value.as_array()) out.push_back(to_library(item));
    return out;
  }
  Library out = Library::object();
  // The library's own insertion looks for the key first, one by one; keys here are distinct.
  std::vector<Library::object_t::value_type>& members = out.get_ref<Library::object_t&>();
  for (const auto& [key, member] : value.as_object()) {
    members.emplace_back(key, to_library(member));
  }
  return out;
}

}  // namespace

Json::Json(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = static_cast<double>(value);
  }
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",   "boolean", "integer", "number",
                                           "string", "array",   "object",  "binary"};
  return kNames[value_.index()];
}

double Json::as_double() const {
  return is_integer() ? static_cast<double>(as_int()) : std::get<double>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, member] : as_object()) {
    if (name == key) return &member;
  }
  return nullptr;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (auto& [name, member] : as_object()) {
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  }
  as_object().emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (is_null()) value_ = Array();
  as_array().push_back(std::move(value));
  return *this;
}

Result<Json> parse_json(std::string_view text, JsonLimits limits) {
  Builder builder(limits);
  if (Library::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root);
  if (builder.position() == 0) return invalid("not valid JSON: " + builder.what());
  return invalid(fmt::format("not valid JSON at {}: {}", place(text, builder.position()),
                             to_valid_utf8(reason(builder.what()))));
}

std::string dump_json(const Json& value, int indent) {
  return to_library(value).dump(indent, ' ', false, Library::error_handler_t::replace);
}

std::string to_msgpack(const Json& value) {
  std::string out;
  Library::to_msgpack(to_library(value), nlohmann::detail::output_adapter<char>(out));
  return out;
}

Result<Json> from_msgpack(std::span<const std::byte> bytes, JsonLimits limits) {
  Builder builder(limits);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (Library::sax_parse(begin, begin + bytes.size(), &builder,
                         nlohmann::detail::input_format_t::msgpack)) {
    return std::move(builder.root);
  }
  return invalid(fmt::format("not valid MessagePack at byte {}: {}", builder.position(),
                             to_valid_utf8(reason(builder.what()))));
}

}  // namespace plimsoll
