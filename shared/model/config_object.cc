#include "shared/model/config_object.h"

#include <fmt/format.h>

namespace plimsoll {

const Json* ConfigObject::find(std::string_view key) const {
  const Json* value = json_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string ConfigObject::name(std::string_view key) const {
  return fmt::format("config.json's {}{}", path_, key);
}

Error ConfigObject::wrong_type(std::string_view key, const Json& value,
                               std::string_view expected) const {
  return invalid(
      fmt::format("{} is of type {}; expected {}", name(key), value.type_name(), expected));
}

Result<std::int64_t> ConfigObject::integer(std::string_view key, const Json& value,
                                           std::int64_t min, std::int64_t max) const {
  if (!value.is_integer()) return wrong_type(key, value, "an integer");
  if (value.as_int() >= min && value.as_int() <= max) return value.as_int();
  return invalid(fmt::format("{} is {}; expected {} to {}", name(key), value.as_int(), min, max));
}

Result<std::int64_t> ConfigObject::size(std::string_view key, std::int64_t size_max) const {
  const Json* value = find(key);
  if (value != nullptr) return integer(key, *value, 1, size_max);
  return not_found(fmt::format("{} is missing; expected an integer", name(key)));
}

Result<std::int64_t> ConfigObject::size_or(std::string_view key, std::int64_t fallback,
                                           std::int64_t size_max) const {
  const Json* value = find(key);
  return value == nullptr ? Result<std::int64_t>(fallback) : integer(key, *value, 1, size_max);
}

Result<std::int64_t> ConfigObject::count_or(std::string_view key, std::int64_t fallback,
                                            std::int64_t size_max) const {
  const Json* value = find(key);
  return value == nullptr ? Result<std::int64_t>(fallback) : integer(key, *value, 0, size_max);
}

Result<double> ConfigObject::positive_or(std::string_view key, double fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) return wrong_type(key, *value, "a number");
  if (value->as_double() > 0 && value->as_double() < 1e12) return value->as_double();
  return invalid(
      fmt::format("{} is {}; expected a positive number", name(key), value->as_double()));
}

Result<bool> ConfigObject::bool_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return wrong_type(key, *value, "true or false");
  return value->as_bool();
}

Result<std::string> ConfigObject::text_or(std::string_view key, std::string fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) return wrong_type(key, *value, "a string");
  return value->as_string();
}

Result<std::vector<std::string>> ConfigObject::texts(std::string_view key) const {
  std::vector<std::string> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) return wrong_type(key, *value, "a list of strings");
  for (const Json& item : value->as_array()) {
    if (!item.is_string()) return wrong_type(key, item, "a list of strings");
    out.push_back(item.as_string());
  }
  return out;
}

Result<std::vector<std::int64_t>> ConfigObject::integers(std::string_view key) const {
  std::vector<std::int64_t> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) return wrong_type(key, *value, "a list of integers");
  for (const Json& item : value->as_array()) {
    out.push_back(TRY(integer(key, item, 0, kModelLengthMax)));
  }
  return out;
}

Result<std::optional<ConfigObject>> ConfigObject::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::optional<ConfigObject>();
  if (!value->is_object()) return wrong_type(key, *value, "an object");
  return std::optional(ConfigObject(*value, fmt::format("{}{}.", path_, key)));
}

}  // namespace plimsoll
