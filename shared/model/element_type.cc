#include "shared/model/element_type.h"

#include <algorithm>
#include <array>
#include <limits>

namespace plimsoll {
namespace {

constexpr std::array kTypes = {
    ElementType{"BOOL", 8},    ElementType{"U8", 8},      ElementType{"I8", 8},
    ElementType{"U16", 16},    ElementType{"I16", 16},    ElementType{"U32", 32},
    ElementType{"I32", 32},    ElementType{"U64", 64},    ElementType{"I64", 64},
    ElementType{"F16", 16},    ElementType{"BF16", 16},   ElementType{"F32", 32},
    ElementType{"F64", 64},    ElementType{"C64", 64},    ElementType{"F8_E5M2", 8},
    ElementType{"F8_E4M3", 8}, ElementType{"F8_E8M0", 8}, ElementType{"F6_E2M3", 6},
    ElementType{"F6_E3M2", 6}, ElementType{"F4", 4},
};

}  // namespace

const ElementType* find_element_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &ElementType::name);
  return found == kTypes.end() ? nullptr : found;
}

std::optional<Bytes> element_bytes(const ElementType& type, std::int64_t elements) {
  if (elements < 0 || elements > std::numeric_limits<std::int64_t>::max() / type.bits) {
    return std::nullopt;
  }
  const std::int64_t bits = elements * type.bits;
  return bits % 8 == 0 ? std::optional(bits / 8) : std::nullopt;
}

}  // namespace plimsoll
