// ElementType: the types of safetensors: names and bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shared/base/units.h"

namespace plimsoll {

struct ElementType {
  std::string_view name;
  std::int64_t bits = 8;
};

// nullptr: no type that we know.
const ElementType* find_element_type(std::string_view name);

// nullopt: the elements end inside a byte, or their bytes exceed 63 bits.
std::optional<Bytes> element_bytes(const ElementType& type, std::int64_t elements);

}  // namespace plimsoll
