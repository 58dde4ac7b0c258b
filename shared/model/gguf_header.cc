#include "shared/model/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/base/text.h"
#include "shared/model/gguf_type.h"

namespace plimsoll {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kAlignmentMax = 1U << 20;
constexpr std::uint64_t kElementsMax = 1ULL << 48;  // no file is as large as a tensor of so many
constexpr std::uint64_t kOffsetMax = 1ULL << 60;

enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

Error error_at(std::uint64_t position, std::string_view message) {
  return invalid(fmt::format("GGUF header, byte {}: {}", position, message));
}

// Text out of the file as it may stand in a message: valid, and not too long.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 80;
  return fmt::format("\"{}{}\"", to_valid_utf8(text.substr(0, kShown)),
                     text.size() > kShown ? "..." : "");
}

// Reads forward through the file; never past its end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (left() < sizeof(T)) return truncated(what, sizeof(T));
    return take<T>();
  }

  // REQUIRES: sizeof(T) bytes are left.
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof value);
    position_ += sizeof value;
    return value;
  }

  Result<std::string_view> text(std::string_view what, std::uint64_t bytes_max) {
    const std::uint64_t start = position_;
    const auto length = TRY(number<std::uint64_t>(what));
    if (length > bytes_max) {
      return error_at(
          start, fmt::format("{} is {} bytes long; expected at most {}", what, length, bytes_max));
    }
    if (length > left()) return truncated(what, length);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
    position_ += length;
    return text;
  }

  Error truncated(std::string_view what, std::uint64_t needed) const {
    return error_at(position_, fmt::format("the file ends inside {}: expected {} more bytes, found "
                                           "{}; it may have been cut short while it was copied",
                                           what, needed, left()));
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> bytes, std::uint64_t strings_bytes_max)
      : cursor_(bytes), size_(bytes.size()), strings_bytes_max_(strings_bytes_max) {}

  Result<GgufHeader> parse() {
    TRY(parse_version());
    const auto tensors = TRY(parse_count("the tensor count", kMinTensorBytes, kGgufTensorsMax));
    const auto pairs = TRY(parse_count("the metadata count", kMinPairBytes, kGgufPairsMax));
    for (std::uint64_t i = 0; i < pairs; ++i) TRY(parse_pair(i));
    TRY(read_alignment());
    std::vector<Pending> pending;
    pending.reserve(tensors);
    for (std::uint64_t i = 0; i < tensors; ++i) pending.push_back(TRY(parse_tensor(i)));
    TRY(place(std::move(pending)));
    return std::move(header_);
  }

 private:
  // The least that an entry can take: an empty string, a type and one byte; or a name of no bytes,
  // one dimension, type and offset.
  static constexpr std::uint64_t kMinPairBytes = 8 + 4 + 1;
  static constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

  struct Pending {
    WeightInfo info;
    std::uint64_t offset = 0;    // from the start of the data
    std::uint64_t position = 0;  // of its entry, for messages
  };

  Status parse_version() {
    const auto magic = TRY(cursor_.number<std::uint32_t>("the magic"));
    if (magic != kMagic) {
      return error_at(0,
                      fmt::format("not a GGUF file: it starts with {:02x} {:02x} {:02x} {:02x}, "
                                  "expected 47 47 55 46 (\"GGUF\")",
                                  magic & 255, magic >> 8 & 255, magic >> 16 & 255, magic >> 24));
    }
    const auto version = TRY(cursor_.number<std::uint32_t>("the version"));
    if (version == 2 || version == 3) return {};
    if (version == 1) {
      return error_at(4, "GGUF version 1 cannot be read, expected 2 or 3; convert the model anew");
    }
    if (version != 0 && (version & 0xffff) == 0) {
      return error_at(4,
                      fmt::format("the file is big-endian (its version reads {:#010x}); expected "
                                  "little-endian; convert the model anew for this byte order",
                                  version));
    }
    return error_at(4, fmt::format("GGUF version {} is unknown, expected 2 or 3", version));
  }

  Result<std::uint64_t> parse_count(std::string_view what, std::uint64_t entry_bytes,
                                    std::uint64_t count_max) {
    const std::uint64_t start = cursor_.position();
    const auto count = TRY(cursor_.number<std::uint64_t>(what));
    const std::uint64_t possible = std::min(count_max, cursor_.left() / entry_bytes);
    if (count > possible) {
      return error_at(start,
                      fmt::format("{} is {}; expected at most {} in the {} bytes that follow", what,
                                  count, possible, cursor_.left()));
    }
    return count;
  }

  Status parse_pair(std::uint64_t index) {
    const std::uint64_t start = cursor_.position();
    const auto key =
        TRY(cursor_.text(fmt::format("the key of metadata pair {}", index), kGgufKeyBytesMax));
    if (key.empty()) {
      return error_at(start, fmt::format("metadata pair {} has an empty key", index));
    }
    TRY(claim_string(key, key.size(), start));
    const std::uint64_t type_at = cursor_.position();
    const auto type = TRY(cursor_.number<std::uint32_t>("a value type"));
    GgufValue value = TRY(static_cast<ValueType>(type) == ValueType::array
                              ? parse_array(key)
                              : parse_scalar(static_cast<ValueType>(type), key, type_at));
    if (!header_.metadata.try_emplace(std::string(key), std::move(value)).second) {
      return error_at(start, fmt::format("metadata key {} appears twice", in_quotes(key)));
    }
    return {};
  }

  template <typename T>
  Result<GgufValue> integer(std::string_view key) {
    const std::uint64_t start = cursor_.position();
    const T value = TRY(cursor_.number<T>(key));
    if (!std::in_range<std::int64_t>(value)) {
      return error_at(start, fmt::format("{} is {}; expected at most {}", in_quotes(key), value,
                                         std::numeric_limits<std::int64_t>::max()));
    }
    return GgufValue(static_cast<std::int64_t>(value));
  }

  Result<bool> boolean(std::string_view key) {
    const std::uint64_t start = cursor_.position();
    const auto value = TRY(cursor_.number<std::uint8_t>(key));
    if (value > 1) {
      return error_at(start, fmt::format("{} is a boolean with the value {}; expected 0 or 1",
                                         in_quotes(key), value));
    }
    return value == 1;
  }

  Result<GgufValue> parse_scalar(ValueType type, std::string_view key, std::uint64_t type_at) {
    switch (type) {
      case ValueType::u8:
        return integer<std::uint8_t>(key);
      case ValueType::i8:
        return integer<std::int8_t>(key);
      case ValueType::u16:
        return integer<std::uint16_t>(key);
      case ValueType::i16:
        return integer<std::int16_t>(key);
      case ValueType::u32:
        return integer<std::uint32_t>(key);
      case ValueType::i32:
        return integer<std::int32_t>(key);
      case ValueType::u64:
        return integer<std::uint64_t>(key);
      case ValueType::i64:
        return integer<std::int64_t>(key);
      case ValueType::f32:
        return GgufValue(static_cast<double>(TRY(cursor_.number<float>(key))));
      case ValueType::f64:
        return GgufValue(TRY(cursor_.number<double>(key)));
      case ValueType::boolean:
        return GgufValue(TRY(boolean(key)));
      case ValueType::string:
        return GgufValue(TRY(string(key)));
      case ValueType::array:
        break;
    }
    return unknown_type(type, key, type_at);
  }

  Result<GgufValue> parse_array(std::string_view key) {
    const std::uint64_t type_at = cursor_.position();
    const auto type =
        static_cast<ValueType>(TRY(cursor_.number<std::uint32_t>("an array's element type")));
    const std::uint64_t count_at = cursor_.position();
    const auto count = TRY(cursor_.number<std::uint64_t>("an array's length"));
    switch (type) {
      case ValueType::u8:
        return numbers<std::uint8_t, std::int64_t>(key, count, count_at);
      case ValueType::i8:
        return numbers<std::int8_t, std::int64_t>(key, count, count_at);
      case ValueType::u16:
        return numbers<std::uint16_t, std::int64_t>(key, count, count_at);
      case ValueType::i16:
        return numbers<std::int16_t, std::int64_t>(key, count, count_at);
      case ValueType::u32:
        return numbers<std::uint32_t, std::int64_t>(key, count, count_at);
      case ValueType::i32:
        return numbers<std::int32_t, std::int64_t>(key, count, count_at);
      case ValueType::u64:
        return numbers<std::uint64_t, std::int64_t>(key, count, count_at);
      case ValueType::i64:
        return numbers<std::int64_t, std::int64_t>(key, count, count_at);
      case ValueType::f32:
        return numbers<float, double>(key, count, count_at);
      case ValueType::f64:
        return numbers<double, double>(key, count, count_at);
      case ValueType::boolean:
        return booleans(key, count, count_at);
      case ValueType::string:
        return strings(key, count, count_at);
      case ValueType::array:
        return error_at(type_at, fmt::format("{} is an array of arrays; expected an array of "
                                             "numbers, booleans or strings",
                                             in_quotes(key)));
    }
    return unknown_type(type, key, type_at);
  }

  // Before anything is allocated: the elements must be there, and within the file's budget.
  Status claim(std::string_view key, std::uint64_t count, std::uint64_t element_bytes,
               std::uint64_t count_at) {
    const std::uint64_t possible =
        std::min(cursor_.left() / element_bytes, kGgufElementsMax - elements_);
    if (count > possible) {
      return error_at(
          count_at, fmt::format("array {} has {} elements; expected at most {} ({} bytes "
                                "follow, all arrays may have {} elements together)",
                                in_quotes(key), count, possible, cursor_.left(), kGgufElementsMax));
    }
    elements_ += count;
    return {};
  }

  template <typename Stored, typename Held>
  Result<GgufValue> numbers(std::string_view key, std::uint64_t count, std::uint64_t count_at) {
    TRY(claim(key, count, sizeof(Stored), count_at));
    std::vector<Held> values;
    values.reserve(count);
    while (values.size() < count) {
      const auto value = cursor_.take<Stored>();
      if constexpr (std::is_integral_v<Stored>) {
        if (!std::in_range<Held>(value)) {
          return error_at(cursor_.position() - sizeof(Stored),
                          fmt::format("an element of {} is {}; expected at most {}", in_quotes(key),
                                      value, std::numeric_limits<Held>::max()));
        }
      }
      values.push_back(static_cast<Held>(value));
    }
    return GgufValue(std::move(values));
  }

  Result<GgufValue> booleans(std::string_view key, std::uint64_t count, std::uint64_t count_at) {
    TRY(claim(key, count, 1, count_at));
    std::vector<bool> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = TRY(boolean(key));
    return GgufValue(std::move(values));
  }

  // Before a string is copied: many short ones must not need many times the file's size.
  Status claim_string(std::string_view key, std::uint64_t bytes, std::uint64_t at) {
    strings_bytes_ += sizeof(std::string) + bytes;
    if (strings_bytes_ <= strings_bytes_max_) return {};
    return error_at(at, fmt::format("up to {} the strings of the metadata need {} bytes of memory; "
                                    "expected at most {}",
                                    in_quotes(key), strings_bytes_, strings_bytes_max_));
  }

  Result<std::string> string(std::string_view key) {
    const std::uint64_t start = cursor_.position();
    const auto text = TRY(cursor_.text(key, kGgufStringBytesMax));
    TRY(claim_string(key, text.size(), start));
    return std::string(text);
  }

  Result<GgufValue> strings(std::string_view key, std::uint64_t count, std::uint64_t count_at) {
    TRY(claim(key, count, sizeof(std::uint64_t), count_at));
    std::vector<std::string> values;
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(TRY(string(key)));
    return GgufValue(std::move(values));
  }

  static Error unknown_type(ValueType type, std::string_view key, std::uint64_t type_at) {
    return error_at(type_at, fmt::format("{} has value type {}; expected 0 to 12", in_quotes(key),
                                         static_cast<std::uint32_t>(type)));
  }

  Status read_alignment() {
    const auto found = header_.metadata.find("general.alignment");
    if (found == header_.metadata.end()) return {};
    const std::int64_t* value = std::get_if<std::int64_t>(&found->second);
    if (value == nullptr || *value < 1 ||
        !std::has_single_bit(static_cast<std::uint64_t>(*value)) ||
        static_cast<std::uint64_t>(*value) > kAlignmentMax) {
      return invalid(
          fmt::format("GGUF metadata general.alignment is {}; expected a power of two up to {}",
                      value == nullptr ? std::string("not an integer") : std::to_string(*value),
                      kAlignmentMax));
    }
    alignment_ = static_cast<std::uint64_t>(*value);
    return {};
  }

  Result<Pending> parse_tensor(std::uint64_t index) {
    Pending pending;
    pending.position = cursor_.position();
    const auto name =
        TRY(cursor_.text(fmt::format("the name of tensor {}", index), kGgufNameBytesMax));
    if (name.empty()) return error_at(pending.position, "a tensor has an empty name");
    if (!names_.emplace(name).second) {
      return error_at(pending.position, fmt::format("tensor {} appears twice", in_quotes(name)));
    }
    pending.info.name = name;
    const std::uint64_t shape_at = cursor_.position();
    const auto dimensions = TRY(cursor_.number<std::uint32_t>("a tensor's dimensions"));
    if (dimensions < 1 || dimensions > kGgufDimensionsMax) {
      return error_at(shape_at, fmt::format("tensor {} has {} dimensions; expected 1 to {}",
                                            in_quotes(name), dimensions, kGgufDimensionsMax));
    }
    std::uint64_t elements = 1;
    pending.info.shape.resize(dimensions);
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const std::uint64_t at = cursor_.position();
      const auto size = TRY(cursor_.number<std::uint64_t>("a tensor's shape"));
      if (size < 1 || size > kElementsMax || elements > kElementsMax / size) {
        return error_at(at,
                        fmt::format("dimension {} of tensor {} is {}; expected 1 or more, and at "
                                    "most {} elements in all",
                                    i, in_quotes(name), size, kElementsMax));
      }
      elements *= size;
      pending.info.shape[dimensions - 1 - i] = static_cast<std::int64_t>(size);
    }
    TRY(parse_tensor_type(pending.info, static_cast<std::int64_t>(elements)));
    pending.offset = TRY(parse_tensor_offset(name));
    return pending;
  }

  Status parse_tensor_type(WeightInfo& info, std::int64_t elements) {
    const std::uint64_t at = cursor_.position();
    const auto id = TRY(cursor_.number<std::uint32_t>("a tensor's type"));
    if (!dtype_from_gguf(id) && find_planned_type(id) == nullptr) {
      return error_at(at, fmt::format("tensor {} has the type {}, which is not known to us",
                                      in_quotes(info.name), id));
    }
    const DTypeInfo& type = dtype_info(static_cast<DType>(id));
    if (info.cols() % type.block_length != 0) {
      return error_at(at,
                      fmt::format("tensor {} has rows of {} elements; expected a multiple of {}, "
                                  "the block length of {}",
                                  in_quotes(info.name), info.cols(), type.block_length, type.name));
    }
    info.dtype = type.dtype;
    info.bytes = stored_bytes(type.dtype, elements);
    return {};
  }

  Result<std::uint64_t> parse_tensor_offset(std::string_view name) {
    const std::uint64_t at = cursor_.position();
    const auto offset = TRY(cursor_.number<std::uint64_t>("a tensor's offset"));
    if (offset % alignment_ != 0) {
      return error_at(at,
                      fmt::format("the data of tensor {} start at offset {}; expected a multiple "
                                  "of the alignment, {}",
                                  in_quotes(name), offset, alignment_));
    }
    return offset;
  }

  // Turns offsets into places in the file, once the header's end is known.
  Status place(std::vector<Pending> pending) {
    const std::uint64_t data_start =
        (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
    const std::uint64_t data_bytes = size_ > data_start ? size_ - data_start : 0;
    const auto end = [](const Pending& tensor) {
      return std::min(tensor.offset, kOffsetMax) + static_cast<std::uint64_t>(tensor.info.bytes);
    };
    const auto last = std::ranges::max_element(pending, {}, end);
    if (last != pending.end() && end(*last) > data_bytes) {
      return error_at(last->position,
                      fmt::format("the file should have {} bytes and has {}: tensor {} has {} at "
                                  "offset {} of the data, which start at byte {}; it may have been "
                                  "cut short while it was copied",
                                  data_start + end(*last), size_, in_quotes(last->info.name),
                                  last->info.bytes, last->offset, data_start));
    }
    for (Pending& tensor : pending) tensor.info.offset = data_start + tensor.offset;
    std::ranges::sort(pending, {}, &Pending::offset);
    for (std::size_t i = 1; i < pending.size(); ++i) {
      const WeightInfo& before = pending[i - 1].info;
      if (pending[i].info.offset < before.offset + static_cast<std::uint64_t>(before.bytes)) {
        return error_at(pending[i].position,
                        fmt::format("the data of tensors {} and {} overlap", in_quotes(before.name),
                                    in_quotes(pending[i].info.name)));
      }
    }
    for (Pending& tensor : pending) CHECK(header_.weights.add(std::move(tensor.info)));
    return {};
  }

  Cursor cursor_;
  std::uint64_t size_;
  std::uint64_t strings_bytes_max_;
  std::uint64_t strings_bytes_ = 0;  // of the metadata so far
  std::uint64_t alignment_ = kDefaultAlignment;
  std::uint64_t elements_ = 0;                // of the arrays so far
  std::set<std::string, std::less<>> names_;  // of the tensors so far
  GgufHeader header_;
};

}  // namespace

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> bytes,
                                     std::uint64_t strings_bytes_max) {
  return HeaderParser(bytes, strings_bytes_max).parse();
}

}  // namespace plimsoll
