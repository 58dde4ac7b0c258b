#include "shared/model/gguf_type.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace plimsoll {
namespace {

constexpr DTypeInfo type(std::uint32_t id, std::string_view name, std::int64_t block_length,
                         std::int64_t block_bytes) {
  return {static_cast<DType>(id), name, block_length, block_bytes};
}

// By id. Bytes of a block: its scales, then its elements, as ggml's structs have them.
constexpr std::array kTypes = {
    type(9, "Q8_1", 32, 2 + 2 + 32),
    type(10, "Q2_K", 256, 2 + 2 + 16 + 64),
    type(11, "Q3_K", 256, 2 + 12 + 32 + 64),
    type(15, "Q8_K", 256, 4 + 32 + 256),
    type(16, "IQ2_XXS", 256, 2 + 64),
    type(17, "IQ2_XS", 256, 2 + 8 + 64),
    type(18, "IQ3_XXS", 256, 2 + 32 + 64),
    type(19, "IQ1_S", 256, 2 + 16 + 32),
    type(20, "IQ4_NL", 32, 2 + 16),
    type(21, "IQ3_S", 256, 2 + 4 + 8 + 32 + 64),
    type(22, "IQ2_S", 256, 2 + 16 + 64),
    type(23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
    type(24, "I8", 1, 1),
    type(25, "I16", 1, 2),
    type(26, "I32", 1, 4),
    type(27, "I64", 1, 8),
    type(28, "F64", 1, 8),
    type(29, "IQ1_M", 256, 8 + 16 + 32),
    type(34, "TQ1_0", 256, 2 + 4 + 48),
    type(35, "TQ2_0", 256, 2 + 64),
    type(39, "MXFP4", 32, 1 + 16),
    type(40, "NVFP4", 64, 4 + 32),
    type(41, "Q1_0", 128, 2 + 16),
    type(42, "Q2_0", 64, 2 + 16),
};

}  // namespace

const DTypeInfo* find_planned_type(std::uint32_t id) {
  const auto* found = std::ranges::find(kTypes, static_cast<DType>(id), &DTypeInfo::dtype);
  return found == kTypes.end() ? nullptr : found;
}

std::span<const DTypeInfo> all_planned_types() { return kTypes; }

}  // namespace plimsoll
