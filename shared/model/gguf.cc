#include "shared/model/gguf.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/model/gguf_header.h"

namespace plimsoll {
namespace {

// In the order of GgufValue's alternatives.
constexpr std::array<std::string_view, 8> kKinds = {
    "a boolean",          "an integer",           "a float",
    "a string",           "an array of booleans", "an array of integers",
    "an array of floats", "an array of strings"};

template <typename T>
std::string_view kind_name() {
  return kKinds[GgufValue(T{}).index()];
}

template <typename T>
Result<const T*> typed(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return static_cast<const T*>(nullptr);
  if (const T* held = std::get_if<T>(value)) return held;
  return invalid(fmt::format("GGUF metadata {} is {}; expected {}", key, kKinds[value->index()],
                             kind_name<T>()));
}

template <typename T>
Result<T> required(const GgufFile& file, std::string_view key) {
  const T* held = TRY(typed<T>(file, key));
  if (held != nullptr) return *held;
  return not_found(fmt::format("GGUF metadata {} is missing; expected {}", key, kind_name<T>()));
}

template <typename T>
Result<T> value_or(const GgufFile& file, std::string_view key, T fallback) {
  const T* held = TRY(typed<T>(file, key));
  return held != nullptr ? *held : std::move(fallback);
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  MappedFile mapped = TRY(MappedFile::open(path));
  GgufFile file = TRY_CONTEXT(fmt::format("read model {}: ", path.native()), parse(mapped.bytes()));
  file.file_ = std::move(mapped);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  GgufHeader header = TRY(parse_gguf_header(bytes));
  GgufFile file;
  file.bytes_ = bytes;
  file.metadata_ = std::move(header.metadata);
  file.weights_ = std::move(header.weights);
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

Result<std::int64_t> GgufFile::required_int(std::string_view key) const {
  return required<std::int64_t>(*this, key);
}
Result<double> GgufFile::required_float(std::string_view key) const {
  return required<double>(*this, key);
}
Result<std::string> GgufFile::required_string(std::string_view key) const {
  return required<std::string>(*this, key);
}

Result<std::int64_t> GgufFile::int_or(std::string_view key, std::int64_t fallback) const {
  return value_or(*this, key, fallback);
}
Result<double> GgufFile::float_or(std::string_view key, double fallback) const {
  return value_or(*this, key, fallback);
}
Result<bool> GgufFile::bool_or(std::string_view key, bool fallback) const {
  return value_or(*this, key, fallback);
}
Result<std::string> GgufFile::string_or(std::string_view key, std::string fallback) const {
  return value_or(*this, key, std::move(fallback));
}

Result<const std::vector<std::string>*> GgufFile::strings(std::string_view key) const {
  return typed<std::vector<std::string>>(*this, key);
}
Result<const std::vector<std::int64_t>*> GgufFile::ints(std::string_view key) const {
  return typed<std::vector<std::int64_t>>(*this, key);
}
Result<const std::vector<double>*> GgufFile::floats(std::string_view key) const {
  return typed<std::vector<double>>(*this, key);
}

std::span<const std::byte> GgufFile::bytes_of(const WeightInfo& weight) const {
  CHECK(weight.offset <= bytes_.size());
  CHECK(static_cast<std::uint64_t>(weight.bytes) <= bytes_.size() - weight.offset);
  return bytes_.subspan(weight.offset, static_cast<std::size_t>(weight.bytes));
}

}  // namespace plimsoll
