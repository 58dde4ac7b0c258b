#include "shared/control/codec.h"

#include <array>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/control/msgpack.h"

namespace plimsoll {
namespace {

constexpr std::string_view kMagic = "PLIM";

// In the order of the variant.
constexpr std::array kTypeNames = {
    "hello",    "load",      "progress", "loaded",       "commit",       "ready",
    "ping",     "pong",      "fault",    "set_live",     "drain",        "router_setup",
    "replicas", "listening", "probe",    "probe_result", "router_stats", "command",
    "reply",    "generate",  "cancel",   "step_tokens"};
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

struct Counter {
  std::size_t fields = 0;
  template <typename T>
  void operator()(const char*, const T&) {
    ++fields;
  }
};

template <typename M>
concept HasFields = requires(M& message, Counter& counter) {
  message.fields(counter);
};

struct Encoder {
  MsgpackWriter out;

  template <typename T>
  void operator()(const char* name, const T& field) {
    out.string(name);
    value(field);
  }
  void value(bool field) { out.boolean(field); }
  void value(std::int64_t field) { out.integer(field); }
  void value(std::uint64_t field) { out.unsigned_integer(field); }
  void value(double field) { out.number(field); }
  void value(const std::string& field) { out.string(field); }
  void value(const Json& field) { out.raw(to_msgpack(field)); }
  template <typename T>
  void value(const std::vector<T>& field) {
    out.array(field.size());
    for (const T& item : field) value(item);
  }
  template <HasFields M>
  void value(const M& message) {
    Counter counter;
    visit_fields(message, counter);
    out.map(counter.fields);
    visit_fields(message, *this);
  }
};

// Where and why decoding failed. The path is put together while the failure passes outwards.
struct Failure {
  std::string path;
  std::string what;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : in_(bytes) {}

  MsgpackReader& in() { return in_; }
  const Failure& failure() const { return failure_; }

  bool value(bool& field) { return take(in_.boolean(), field, "a boolean"); }
  bool value(std::int64_t& field) { return take(in_.integer(), field, "a 64-bit integer"); }
  bool value(std::uint64_t& field) {
    return take(in_.unsigned_integer(), field, "an unsigned 64-bit integer");
  }
  bool value(double& field) { return take(in_.number(), field, "a number"); }
  bool value(std::string& field) { return take(in_.string(), field, "a string"); }
  bool value(Json& field) {
    const std::size_t start = in_.position();
    if (!in_.skip()) return fail("a value that is not cut short");
    Result<Json> json = from_msgpack(in_.bytes().subspan(start, in_.position() - start));
    if (!json) {
      failure_.what = json.error().message;
      return false;
    }
    field = std::move(*json);
    return true;
  }
  template <typename T>
  bool value(std::vector<T>& field) {
    const std::optional<std::size_t> items = in_.array();
    if (!items) return fail("an array");
    field.clear();
    for (std::size_t i = 0; i < *items; ++i) {
      T item{};
      if (!value(item)) {
        failure_.path.insert(0, fmt::format("[{}]", i));
        return false;
      }
      field.push_back(std::move(item));
    }
    return true;
  }
  template <HasFields M>
  bool value(M& message);

  bool fail(const char* expected) {
    failure_.what =
        fmt::format("expected {}, found {} at byte {}", expected, in_.kind(), in_.position());
    return false;
  }
  void missing(const char* name) { failure_ = {fmt::format(".{}", name), "is missing"}; }
  void inside(const char* name) { failure_.path.insert(0, fmt::format(".{}", name)); }

 private:
  template <typename From, typename T>
  bool take(const std::optional<From>& read, T& field, const char* expected) {
    if (!read) return fail(expected);
    field = T(*read);
    return true;
  }

  MsgpackReader in_;
  Failure failure_;
};

// Takes the fields of one object. Senders of the same version write them in the order in which they
// are visited; only for others are the members looked up by name.
class FieldReader {
 public:
  FieldReader(Decoder& decoder, std::size_t members) : decoder_(decoder), left_(members) {}

  template <typename T>
  void operator()(const char* name, T& field) {
    if (failed_) return;
    if (!find(name)) {
      failed_ = true;
      decoder_.missing(name);
    } else if (!decoder_.value(field)) {
      failed_ = true;
      decoder_.inside(name);
    }
  }

  // Moves past what no field asked for.
  bool finish() {
    if (failed_) return false;
    if (!index_rest()) return decoder_.fail("an object that is not cut short");
    decoder_.in().seek(indexed_ ? end_ : decoder_.in().position());
    return true;
  }

 private:
  bool find(std::string_view name) {
    MsgpackReader& in = decoder_.in();
    if (!indexed_ && left_ > 0) {
      const std::size_t before = in.position();
      const std::optional<std::string_view> key = in.string();
      if (key && *key == name) {
        --left_;
        return true;
      }
      in.seek(before);
    }
    if (!index_rest()) return false;
    for (const auto& [key, position] : members_) {
      if (key != name) continue;
      in.seek(position);
      return true;
    }
    return false;
  }

  bool index_rest() {
    if (indexed_ || left_ == 0) return true;
    MsgpackReader& in = decoder_.in();
    for (; left_ > 0; --left_) {
      const std::optional<std::string_view> key = in.string();
      if (!key) return false;
      members_.emplace_back(*key, in.position());
      if (!in.skip()) return false;
    }
    indexed_ = true;
    end_ = in.position();
    return true;
  }

  Decoder& decoder_;
  std::size_t left_;  // members that were not looked at
  bool failed_ = false;
  bool indexed_ = false;
  std::vector<std::pair<std::string_view, std::size_t>> members_;
  std::size_t end_ = 0;
};

template <HasFields M>
bool Decoder::value(M& message) {
  const std::optional<std::size_t> members = in_.map();
  if (!members) return fail("an object");
  FieldReader reader(*this, *members);
  message.fields(reader);
  return reader.finish();
}

struct Printer {
  Json object = Json::object();

  template <typename T>
  void operator()(const char* name, const T& field) {
    object.set(name, value(field));
  }
  template <typename T>
  static Json value(const T& field) {
    if constexpr (IsVector<T>::value) {
      Json items = Json::array();
      for (const auto& item : field) items.push(value(item));
      return items;
    } else if constexpr (std::is_constructible_v<Json, const T&>) {
      return Json(field);
    } else {
      Printer inner;
      visit_fields(field, inner);
      return std::move(inner.object);
    }
  }
};

template <std::size_t I = 0>
Result<Message> decode_object(std::string_view type, Decoder& decoder) {
  if constexpr (I == std::variant_size_v<Message>) {
    return invalid(
        fmt::format("message of an unknown type '{}'", to_valid_utf8(type.substr(0, 40))));
  } else {
    if (type != kTypeNames[I]) return decode_object<I + 1>(type, decoder);
    std::variant_alternative_t<I, Message> message;
    if (!decoder.value(message)) {
      return invalid(
          fmt::format("message '{}{}': {}", type, decoder.failure().path, decoder.failure().what));
    }
    if (!decoder.in().at_end()) {
      return invalid(fmt::format("message '{}': bytes follow its end at byte {}", type,
                                 decoder.in().position()));
    }
    return Message(std::move(message));
  }
}

}  // namespace

std::string encode_message(const Message& message) {
  Encoder encoder;
  encoder.out.array(4);
  encoder.out.string(kMagic);
  encoder.out.integer(kProtocolVersion);
  encoder.out.string(message_type(message));
  std::visit([&](const auto& alternative) { encoder.value(alternative); }, message);
  return std::move(encoder.out.bytes());
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  if (bytes.size() > kMessageBytesMax) {
    return invalid(
        fmt::format("message of {} bytes, above the limit of {}", bytes.size(), kMessageBytesMax));
  }
  Decoder decoder(bytes);
  MsgpackReader& in = decoder.in();
  if (in.array() != std::size_t{4} || in.string() != kMagic) {
    return invalid("not a message of Plimsoll (no magic word)");
  }
  const std::optional<std::int64_t> version = in.integer();
  if (!version) return invalid("message without a protocol version");
  if (*version != kProtocolVersion) {
    return invalid(fmt::format(
        "message of protocol version {}, this program speaks version {}: both sides must come "
        "from the same installation",
        *version, kProtocolVersion));
  }
  const std::optional<std::string_view> type = in.string();
  if (!type) return invalid("message without a type");
  return decode_object(*type, decoder);
}

const char* message_type(const Message& message) { return kTypeNames[message.index()]; }

Json message_to_json(const Message& message) {
  return std::visit([](const auto& alternative) { return Printer::value(alternative); }, message);
}

}  // namespace plimsoll
