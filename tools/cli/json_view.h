// JsonView: reads members of a daemon's answer that may be absent or of another type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "shared/base/json.h"

namespace plimsoll {

// The member at a path, or nullptr.
inline const Json* json_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    if (at != nullptr) at = at->find(key);
  }
  return at;
}

inline std::string text_at(const Json& json, std::initializer_list<std::string_view> path,
                           const std::string& fallback = "") {
  const Json* at = json_at(json, path);
  return at != nullptr && at->is_string() ? at->as_string() : fallback;
}

inline std::int64_t int_at(const Json& json, std::initializer_list<std::string_view> path,
                           std::int64_t fallback = 0) {
  const Json* at = json_at(json, path);
  return at != nullptr && at->is_integer() ? at->as_int() : fallback;
}

inline double number_at(const Json& json, std::initializer_list<std::string_view> path,
                        double fallback = 0) {
  const Json* at = json_at(json, path);
  return at != nullptr && at->is_number() ? at->as_double() : fallback;
}

inline Json::Array items_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = json_at(json, path);
  return at != nullptr && at->is_array() ? at->as_array() : Json::Array{};
}

}  // namespace plimsoll
