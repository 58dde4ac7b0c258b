// ConfigObject: typed members of an object of config.json, with the path in every message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"

namespace plimsoll {

// Sizes above this are damage, not models; it also keeps products of three of them inside 63 bits.
constexpr std::int64_t kModelSizeMax = 1 << 20;
constexpr std::int64_t kModelLengthMax = (std::int64_t{1} << 31) - 1;

class ConfigObject {
 public:
  // `path` is "" for the file's own object, else "text_config." and the like. REQUIRES: json
  // outlives this.
  ConfigObject(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  // nullptr where the member is absent or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::string name(std::string_view key) const;  // "config.json's text_config.hidden_size"

  // 1 to size_max.
  Result<std::int64_t> size(std::string_view key, std::int64_t size_max = kModelSizeMax) const;
  Result<std::int64_t> size_or(std::string_view key, std::int64_t fallback,
                               std::int64_t size_max = kModelSizeMax) const;
  // 0 to size_max.
  Result<std::int64_t> count_or(std::string_view key, std::int64_t fallback,
                                std::int64_t size_max = kModelSizeMax) const;
  Result<double> positive_or(std::string_view key, double fallback) const;
  Result<bool> bool_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string fallback) const;
  Result<std::vector<std::string>> texts(std::string_view key) const;      // empty where absent
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;  // empty where absent
  // nullopt where absent; an error where it is no object.
  Result<std::optional<ConfigObject>> object(std::string_view key) const;

 private:
  Error wrong_type(std::string_view key, const Json& value, std::string_view expected) const;
  Result<std::int64_t> integer(std::string_view key, const Json& value, std::int64_t min,
                               std::int64_t max) const;

  const Json* json_;
  std::string path_;
};

}  // namespace plimsoll
