#include "shared/control/msgpack.h"

#include <bit>
#include <limits>

namespace plimsoll {
namespace {

// First bytes of the format, https://github.com/msgpack/msgpack/blob/master/spec.md.
constexpr std::uint8_t kNil = 0xc0, kFalse = 0xc2, kTrue = 0xc3;
constexpr std::uint8_t kBin8 = 0xc4, kExt8 = 0xc7, kFloat32 = 0xca, kFloat64 = 0xcb;
constexpr std::uint8_t kUint8 = 0xcc, kInt8 = 0xd0, kFixExt1 = 0xd4;
constexpr std::uint8_t kStr8 = 0xd9, kArray16 = 0xdc, kMap16 = 0xde;

constexpr bool is_positive_fix(std::uint8_t first) { return first < 0x80; }
constexpr bool is_negative_fix(std::uint8_t first) { return first >= 0xe0; }
constexpr bool is_fix_map(std::uint8_t first) { return (first & 0xf0) == 0x80; }
constexpr bool is_fix_array(std::uint8_t first) { return (first & 0xf0) == 0x90; }
constexpr bool is_fix_string(std::uint8_t first) { return (first & 0xe0) == 0xa0; }
constexpr bool is_within(std::uint8_t first, std::uint8_t from, int count) {
  return first >= from && first < from + count;
}

}  // namespace

void MsgpackWriter::big_endian(std::uint64_t value, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    out_.push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

// `first_of_three`: of the 8-, 16- and 32-bit forms, which follow each other.
void MsgpackWriter::sized(std::uint8_t first_of_three, std::size_t size) {
  const int log = size <= 0xff ? 0 : size <= 0xffff ? 1 : 2;
  out_.push_back(static_cast<char>(first_of_three + log));
  big_endian(size, 1 << log);
}

void MsgpackWriter::boolean(bool value) {
  out_.push_back(static_cast<char>(value ? kTrue : kFalse));
}

void MsgpackWriter::unsigned_integer(std::uint64_t value) {
  if (value < 0x80) {
    out_.push_back(static_cast<char>(value));
    return;
  }
  const int log = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffff'ffff ? 2 : 3;
  out_.push_back(static_cast<char>(kUint8 + log));
  big_endian(value, 1 << log);
}

void MsgpackWriter::integer(std::int64_t value) {
  if (value >= 0) return unsigned_integer(static_cast<std::uint64_t>(value));
  if (value >= -32) {
    out_.push_back(static_cast<char>(value));
    return;
  }
  const int log = value >= std::numeric_limits<std::int8_t>::min()    ? 0
                  : value >= std::numeric_limits<std::int16_t>::min() ? 1
                  : value >= std::numeric_limits<std::int32_t>::min() ? 2
                                                                      : 3;
  out_.push_back(static_cast<char>(kInt8 + log));
  big_endian(static_cast<std::uint64_t>(value), 1 << log);
}

void MsgpackWriter::number(double value) {
  out_.push_back(static_cast<char>(kFloat64));
  big_endian(std::bit_cast<std::uint64_t>(value), 8);
}

void MsgpackWriter::string(std::string_view value) {
  if (value.size() < 32) {
    out_.push_back(static_cast<char>(0xa0 | value.size()));
  } else {
    sized(kStr8, value.size());
  }
  out_.append(value);
}

void MsgpackWriter::array(std::size_t items) {
  if (items < 16) {
    out_.push_back(static_cast<char>(0x90 | items));
    return;
  }
  out_.push_back(static_cast<char>(items <= 0xffff ? kArray16 : kArray16 + 1));
  big_endian(items, items <= 0xffff ? 2 : 4);
}

void MsgpackWriter::map(std::size_t members) {
  if (members < 16) {
    out_.push_back(static_cast<char>(0x80 | members));
    return;
  }
  out_.push_back(static_cast<char>(members <= 0xffff ? kMap16 : kMap16 + 1));
  big_endian(members, members <= 0xffff ? 2 : 4);
}

void MsgpackWriter::raw(std::string_view encoded) { out_.append(encoded); }

std::optional<std::uint64_t> MsgpackReader::after_first(std::size_t bytes) const {
  if (left() < 1 + bytes) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 1; i <= bytes; ++i) {
    value = (value << 8) | static_cast<std::uint8_t>(bytes_[position_ + i]);
  }
  return value;
}

std::optional<bool> MsgpackReader::boolean() {
  if (at_end() || (peek() != kTrue && peek() != kFalse)) return std::nullopt;
  return static_cast<std::uint8_t>(bytes_[position_++]) == kTrue;
}

std::optional<std::uint64_t> MsgpackReader::unsigned_integer() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  if (is_positive_fix(first)) {
    ++position_;
    return first;
  }
  if (is_within(first, kUint8, 4)) {
    const std::size_t size = std::size_t{1} << (first - kUint8);
    const std::optional<std::uint64_t> value = after_first(size);
    if (value) position_ += 1 + size;
    return value;
  }
  // A signed form may hold a number that is not negative.
  if (!is_within(first, kInt8, 4)) return std::nullopt;
  const std::size_t before = position_;
  const std::optional<std::int64_t> value = integer();
  if (value && *value >= 0) return static_cast<std::uint64_t>(*value);
  position_ = before;
  return std::nullopt;
}

std::optional<std::int64_t> MsgpackReader::integer() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  if (is_negative_fix(first)) {
    ++position_;
    return static_cast<std::int8_t>(first);
  }
  if (is_within(first, kInt8, 4)) {
    const int log = first - kInt8;
    const std::size_t size = std::size_t{1} << log;
    const std::optional<std::uint64_t> value = after_first(size);
    if (!value) return std::nullopt;
    position_ += 1 + size;
    const int unused_bits = 64 - (8 << log);
    return static_cast<std::int64_t>(*value << unused_bits) >> unused_bits;
  }
  const std::size_t before = position_;
  const std::optional<std::uint64_t> value = unsigned_integer();
  if (!value) return std::nullopt;
  if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    position_ = before;
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> MsgpackReader::number() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  if (first == kFloat64 || first == kFloat32) {
    const std::size_t size = first == kFloat64 ? 8 : 4;
    const std::optional<std::uint64_t> bits = after_first(size);
    if (!bits) return std::nullopt;
    position_ += 1 + size;
    if (first == kFloat64) return std::bit_cast<double>(*bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(*bits));
  }
  if (const std::optional<std::int64_t> value = integer()) return static_cast<double>(*value);
  if (const std::optional<std::uint64_t> value = unsigned_integer()) {
    return static_cast<double>(*value);
  }
  return std::nullopt;
}

std::optional<std::string_view> MsgpackReader::string() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  std::size_t header = 1;
  std::uint64_t size = first & 0x1fU;
  if (!is_fix_string(first)) {
    if (!is_within(first, kStr8, 3)) return std::nullopt;
    const std::size_t width = std::size_t{1} << (first - kStr8);
    const std::optional<std::uint64_t> given = after_first(width);
    if (!given) return std::nullopt;
    size = *given;
    header += width;
  }
  if (size > left() - header) return std::nullopt;
  const char* start = reinterpret_cast<const char*>(bytes_.data()) + position_ + header;
  position_ += header + size;
  return std::string_view(start, size);
}

std::optional<std::size_t> MsgpackReader::array() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  std::size_t header = 1;
  std::uint64_t items = first & 0x0fU;
  if (!is_fix_array(first)) {
    if (!is_within(first, kArray16, 2)) return std::nullopt;
    const std::size_t width = first == kArray16 ? 2 : 4;
    const std::optional<std::uint64_t> given = after_first(width);
    if (!given) return std::nullopt;
    items = *given;
    header += width;
  }
  if (items > left() - header) return std::nullopt;
  position_ += header;
  return items;
}

std::optional<std::size_t> MsgpackReader::map() {
  if (at_end()) return std::nullopt;
  const std::uint8_t first = peek();
  std::size_t header = 1;
  std::uint64_t members = first & 0x0fU;
  if (!is_fix_map(first)) {
    if (!is_within(first, kMap16, 2)) return std::nullopt;
    const std::size_t width = first == kMap16 ? 2 : 4;
    const std::optional<std::uint64_t> given = after_first(width);
    if (!given) return std::nullopt;
    members = *given;
    header += width;
  }
  if (members > (left() - header) / 2) return std::nullopt;
  position_ += header;
  return members;
}

// One scalar, or the head of a container, whose members are added to `pending`.
bool MsgpackReader::skip_one(std::uint64_t& pending) {
  if (at_end()) return false;
  const std::uint8_t first = peek();
  if (const std::optional<std::size_t> items = array()) {
    pending += *items;
    return true;
  }
  if (const std::optional<std::size_t> members = map()) {
    pending += 2 * *members;
    return true;
  }
  if (string()) return true;
  std::uint64_t body = 0;  // bytes after the first
  if (first == kFloat32 || first == kFloat64) {
    body = first == kFloat32 ? 4 : 8;
  } else if (is_within(first, kUint8, 4) || is_within(first, kInt8, 4)) {
    body = std::uint64_t{1} << ((first - kUint8) % 4);
  } else if (is_within(first, kFixExt1, 5)) {
    body = 1 + (std::uint64_t{1} << (first - kFixExt1));
  } else if (is_within(first, kBin8, 3) || is_within(first, kExt8, 3)) {
    const bool is_ext = first >= kExt8;
    const std::size_t width = std::size_t{1} << (first - (is_ext ? kExt8 : kBin8));
    const std::optional<std::uint64_t> size = after_first(width);
    if (!size) return false;
    body = width + (is_ext ? 1 : 0) + *size;
  } else if (!is_positive_fix(first) && !is_negative_fix(first) && first != kNil &&
             first != kTrue && first != kFalse) {
    return false;  // a container or string that is cut short, or the one byte that means nothing
  }
  if (body > left() - 1) return false;
  position_ += 1 + body;
  return true;
}

bool MsgpackReader::skip() {
  // Each round takes at least a byte, so the loop is bounded by the bytes.
  for (std::uint64_t pending = 1; pending > 0; --pending) {
    if (!skip_one(pending)) return false;
  }
  return true;
}

const char* MsgpackReader::kind() const {
  if (at_end()) return "nothing";
  const std::uint8_t first = peek();
  if (first == kNil) return "nil";
  if (first == kTrue || first == kFalse) return "a boolean";
  if (first == kFloat32 || first == kFloat64) return "a number";
  if (is_fix_map(first) || is_within(first, kMap16, 2)) return "an object";
  if (is_fix_array(first) || is_within(first, kArray16, 2)) return "an array";
  if (is_fix_string(first) || is_within(first, kStr8, 3)) return "a string";
  if (is_positive_fix(first) || is_negative_fix(first)) return "an integer";
  if (is_within(first, kUint8, 4) || is_within(first, kInt8, 4)) return "an integer";
  return "binary data";
}

}  // namespace plimsoll
