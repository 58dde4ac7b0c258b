// GGUF: metadata and the weight index of a GGUF v2/v3 file (ggml's format description; little
// endian). Every count, length, offset and product is checked against the file before it is used,
// so that a hostile or truncated file gives a clear error and nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

// Integers of every width become int64 (u64 above 2^63-1 is refused), f32 and f64 become double.
using GgufValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

class GgufFile {
 public:
  // Maps the file; metadata and tensor infos are parsed, weights are not touched.
  static Result<GgufFile> open(const std::filesystem::path& path);
  // The same from memory, which must outlive the result (tests, fuzzing).
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;

  // Typed look-ups. `required_*`: not_found or invalid, naming the key and both types.
  Result<std::int64_t> required_int(std::string_view key) const;
  Result<double> required_float(std::string_view key) const;
  Result<std::string> required_string(std::string_view key) const;
  // The value where the key is absent or null: the fallback. A wrong type is an error.
  Result<std::int64_t> int_or(std::string_view key, std::int64_t fallback) const;
  Result<double> float_or(std::string_view key, double fallback) const;
  Result<bool> bool_or(std::string_view key, bool fallback) const;
  Result<std::string> string_or(std::string_view key, std::string fallback) const;
  // nullptr where absent; an error where it has another type.
  Result<const std::vector<std::string>*> strings(std::string_view key) const;
  Result<const std::vector<std::int64_t>*> ints(std::string_view key) const;
  Result<const std::vector<double>*> floats(std::string_view key) const;

  const WeightIndex& weights() const { return weights_; }
  // The stored bytes of a weight of this file, unaligned.
  std::span<const std::byte> bytes_of(const WeightInfo& weight) const;
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  WeightIndex weights_;
};

}  // namespace plimsoll
