#include "shared/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/json.h"
#include "shared/base/text.h"
#include "shared/model/element_type.h"

namespace plimsoll {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths are read in place");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kDimensionsMax = 8;
constexpr std::size_t kNameBytesMax = 512;
// A tensor is some ten values; the largest checkpoints have a few thousand tensors a file.
constexpr JsonLimits kLimits{.depth_max = 8, .values_max = 4'000'000};

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kShown = 120;
  return fmt::format("\"{}{}\"", to_valid_utf8(name.substr(0, kShown)),
                     name.size() > kShown ? "..." : "");
}

Error bad(std::string_view name, std::string_view message) {
  return invalid(fmt::format("safetensors header: tensor {}: {}", in_quotes(name), message));
}

constexpr std::uint64_t kDataBytesMax = std::uint64_t{1} << 50;  // of one file

struct Span {
  std::uint64_t begin = 0;  // of the data
  std::uint64_t end = 0;
  std::size_t tensor = 0;
};

Result<std::string_view> header_text(std::span<const std::byte> start, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || start.size() < kLengthBytes) {
    return invalid(
        fmt::format("not a safetensors file: it has {} bytes, and its header's length alone has {}",
                    file_bytes, kLengthBytes));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), sizeof length);
  if (length > kSafetensorsHeaderMax) {
    return invalid(
        fmt::format("not a safetensors file: its header would be {} bytes long; "
                    "expected at most {}",
                    length, kSafetensorsHeaderMax));
  }
  if (length > file_bytes - kLengthBytes || length > start.size() - kLengthBytes) {
    return invalid(
        fmt::format("the safetensors header is {} bytes long, but only {} follow; the "
                    "file may have been cut short while it was copied",
                    length, file_bytes - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + kLengthBytes, length);
  if (text.starts_with('{')) return text;
  return invalid(fmt::format("not a safetensors file: its header starts with {}, expected \"{{\"",
                             in_quotes(text.substr(0, 1))));
}

Result<std::vector<std::int64_t>> read_shape(std::string_view name, const Json& entry) {
  const Json* shape = entry.find("shape");
  if (shape == nullptr || !shape->is_array()) return bad(name, "it has no list \"shape\"");
  if (shape->as_array().size() > kDimensionsMax) {
    return bad(name, fmt::format("it has {} dimensions; expected at most {}",
                                 shape->as_array().size(), kDimensionsMax));
  }
  std::vector<std::int64_t> sizes;
  for (const Json& size : shape->as_array()) {
    if (!size.is_integer() || size.as_int() < 0) {
      return bad(name, "a dimension of its shape is no integer from 0");
    }
    sizes.push_back(size.as_int());
  }
  return sizes;
}

// Bytes that the shape and the type say.
Result<Bytes> expected_bytes(const Tensor& tensor, const ElementType& type) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) {
      return bad(tensor.name, "the product of its shape exceeds 63 bits");
    }
  }
  const auto bytes = element_bytes(type, elements);
  if (bytes) return *bytes;
  return bad(tensor.name, fmt::format("{} elements of type {} are no whole number of bytes",
                                      elements, type.name));
}

Result<Span> read_offsets(std::string_view name, const Json& entry, std::uint64_t data_bytes) {
  const Json* offsets = entry.find("data_offsets");
  const bool is_pair = offsets != nullptr && offsets->is_array() && offsets->as_array().size() == 2;
  if (!is_pair) return bad(name, "it has no pair \"data_offsets\"");
  const Json& begin = offsets->as_array()[0];
  const Json& end = offsets->as_array()[1];
  if (!begin.is_integer() || !end.is_integer() || begin.as_int() < 0 ||
      end.as_int() < begin.as_int()) {
    return bad(name, "its data_offsets are no two integers from 0 in order");
  }
  const Span span{static_cast<std::uint64_t>(begin.as_int()),
                  static_cast<std::uint64_t>(end.as_int()), 0};
  if (span.end <= data_bytes) return span;
  return bad(name, fmt::format("its data end at byte {}, but the file has {} bytes of data; it may "
                               "have been cut short while it was copied",
                               span.end, data_bytes));
}

Result<Span> read_entry(std::string_view name, const Json& entry, std::uint64_t data_bytes,
                        Tensor& tensor) {
  if (name.size() > kNameBytesMax) {
    return bad(name, fmt::format("its name is {} bytes long; expected at most {}", name.size(),
                                 kNameBytesMax));
  }
  if (!entry.is_object()) return bad(name, "it is described by no object");
  const Json* type_name = entry.find("dtype");
  if (type_name == nullptr || !type_name->is_string()) return bad(name, "it has no \"dtype\"");
  const ElementType* type = find_element_type(type_name->as_string());
  if (type == nullptr) {
    return bad(name, fmt::format("its dtype {} is unknown", in_quotes(type_name->as_string())));
  }
  tensor.name = name;
  tensor.type = type->name;
  tensor.shape = TRY(read_shape(name, entry));
  const Span span = TRY(read_offsets(name, entry, data_bytes));
  tensor.bytes = TRY(expected_bytes(tensor, *type));
  if (span.end - span.begin == static_cast<std::uint64_t>(tensor.bytes)) return span;
  return bad(name, fmt::format("its data are {} bytes long; its shape [{}] of type {} needs {}",
                               span.end - span.begin, fmt::join(tensor.shape, ", "), type->name,
                               tensor.bytes));
}

// Empty tensors may lie anywhere; all others fill the data without gaps.
Status check_places(const SafetensorsHeader& header, std::vector<Span> spans,
                    std::optional<std::uint64_t> data_bytes) {
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
  std::ranges::sort(spans, {}, &Span::begin);
  std::uint64_t end = 0;
  for (const Span& span : spans) {
    if (span.begin != end) {
      return bad(header.tensors[span.tensor].name,
                 fmt::format("its data begin at byte {}; expected {}, where those before it end: "
                             "tensors must neither overlap nor leave holes",
                             span.begin, end));
    }
    end = span.end;
  }
  if (!data_bytes || end == *data_bytes) return {};
  return invalid(
      fmt::format("safetensors header: the tensors end at byte {} of the data, but the "
                  "file has {} bytes of data",
                  end, *data_bytes));
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> start,
                                            std::uint64_t file_bytes) {
  const std::string_view text = TRY(header_text(start, file_bytes));
  const Json json = TRY_CONTEXT("safetensors header: ", parse_json(text, kLimits));
  const std::uint64_t data_start = kLengthBytes + text.size();
  // A file that ends with its header has nothing that could be cut short.
  const bool is_header_alone = file_bytes == data_start;
  const std::uint64_t data_bytes = is_header_alone ? kDataBytesMax : file_bytes - data_start;
  SafetensorsHeader header;
  std::vector<Span> spans;
  for (const auto& [name, entry] : json.as_object()) {
    if (name == "__metadata__") continue;
    Span span = TRY(read_entry(name, entry, data_bytes, header.tensors.emplace_back()));
    span.tensor = header.tensors.size() - 1;
    header.begins.push_back(data_start + span.begin);
    spans.push_back(span);
  }
  TRY(check_places(header, std::move(spans),
                   is_header_alone ? std::nullopt : std::optional(data_bytes)));
  return header;
}

Result<SafetensorsHeader> read_safetensors(const std::filesystem::path& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  return TRY_CONTEXT(fmt::format("read {}: ", path.native()),
                     parse_safetensors(file.bytes(), file.bytes().size()));
}

}  // namespace plimsoll
