#include "shared/control/codec.h"

#include <array>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::string_view kMagic = "PLIM";

// In the order of the variant.
constexpr std::array kTypeNames = {
    "hello",        "load",     "opened",    "progress", "loaded",       "commit",
    "ready",        "ping",     "pong",      "fault",    "set_live",     "drain",
    "router_setup", "replicas", "listening", "probe",    "probe_result", "router_stats",
    "command",      "reply",    "generate",  "cancel",   "step_tokens"};
static_assert(kTypeNames.size() == std::variant_size_v<Message>);

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

// `fields` is written once, for reading and writing; this visitor only reads.
template <typename M, typename V>
void visit_fields(const M& message, V& visitor) {
  const_cast<M&>(message).fields(visitor);
}

struct Writer {
  Json object = Json::object();

  template <typename T>
  void operator()(const char* name, const T& field) {
    object.as_object().emplace_back(name, value(field));
  }
  template <typename T>
  static Json value(const T& field) {
    if constexpr (IsVector<T>::value) {
      Json::Array items;
      items.reserve(field.size());
      for (const auto& item : field) items.push_back(value(item));
      return items;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return static_cast<std::int64_t>(field);  // the same 64 bits: Json has no larger integers
    } else if constexpr (std::is_constructible_v<Json, const T&>) {
      return Json(field);
    } else {
      Writer inner;
      visit_fields(field, inner);
      return std::move(inner.object);
    }
  }
};

// Takes the fields of one object; keeps the first thing that is wrong, with its path.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  template <typename T>
  void operator()(const char* name, T& field) {
    if (!error_.empty()) return;
    const Json* member = object_.find(name);
    error_ = member == nullptr ? " is missing" : value(*member, field);
    if (!error_.empty()) error_ = fmt::format(".{}{}", name, error_);
  }
  std::string take_error() { return std::move(error_); }

  // Empty, or what is wrong: " is a string, not an integer", "[3].id is missing".
  template <typename T>
  static std::string value(const Json& json, T& field) {
    if constexpr (std::is_same_v<T, Json>) {
      field = json;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_bool()) return wrong(json, "a boolean");
      field = json.as_bool();
    } else if constexpr (std::is_integral_v<T>) {
      if (!json.is_integer()) return wrong(json, "an integer");
      field = static_cast<T>(json.as_int());
    } else if constexpr (std::is_same_v<T, double>) {
      if (!json.is_number()) return wrong(json, "a number");
      field = json.as_double();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return wrong(json, "a string");
      field = json.as_string();
    } else if constexpr (IsVector<T>::value) {
      return items(json, field);
    } else {
      if (!json.is_object()) return wrong(json, "an object");
      Reader inner(json);
      field.fields(inner);
      return inner.take_error();
    }
    return "";
  }

 private:
  static std::string wrong(const Json& json, const char* expected) {
    return fmt::format(" is of type {}, not {}", json.type_name(), expected);
  }
  template <typename T>
  static std::string items(const Json& json, std::vector<T>& field) {
    if (!json.is_array()) return wrong(json, "an array");
    field.clear();
    field.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) {
      std::string error = value(item, field.emplace_back());
      if (!error.empty()) return fmt::format("[{}]{}", field.size() - 1, error);
    }
    return "";
  }

  const Json& object_;
  std::string error_;
};

template <std::size_t I = 0>
Result<Message> decode_object(std::string_view type, const Json& object) {
  if constexpr (I == std::variant_size_v<Message>) {
    return invalid(
        fmt::format("message of an unknown type '{}'", to_valid_utf8(type.substr(0, 40))));
  } else {
    if (type != kTypeNames[I]) return decode_object<I + 1>(type, object);
    std::variant_alternative_t<I, Message> message;
    const std::string error = Reader::value(object, message);
    if (!error.empty()) return invalid(fmt::format("message '{}'{}", type, error));
    return Message(std::move(message));
  }
}

}  // namespace

std::string encode_message(const Message& message) {
  return to_msgpack(
      Json::array({kMagic, kProtocolVersion, message_type(message), message_to_json(message)}));
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  if (bytes.size() > kMessageBytesMax) {
    return invalid(
        fmt::format("message of {} bytes, above the limit of {}", bytes.size(), kMessageBytesMax));
  }
  const Json frame = TRY_CONTEXT("not a message of Plimsoll: ", from_msgpack(bytes));
  if (!frame.is_array() || frame.as_array().size() != 4 || !(frame.as_array()[0] == kMagic)) {
    return invalid("not a message of Plimsoll (no magic word)");
  }
  const Json& version = frame.as_array()[1];
  if (!version.is_integer()) return invalid("message without a protocol version");
  if (version.as_int() != kProtocolVersion) {
    return invalid(fmt::format(
        "message of protocol version {}, this program speaks version {}: both sides must come "
        "from the same installation",
        version.as_int(), kProtocolVersion));
  }
  const Json& type = frame.as_array()[2];
  if (!type.is_string()) return invalid("message without a type");
  return decode_object(type.as_string(), frame.as_array()[3]);
}

const char* message_type(const Message& message) { return kTypeNames[message.index()]; }

Json message_to_json(const Message& message) {
  return std::visit([](const auto& alternative) { return Writer::value(alternative); }, message);
}

}  // namespace plimsoll
