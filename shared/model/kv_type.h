// KvType: the types that keys and values are stored as, and what a row of them takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "shared/base/units.h"

namespace plimsoll {

enum class KvType : std::uint8_t { f16, bf16, fp8, int8 };
const char* kv_type_name(KvType type);  // "int8"
std::optional<KvType> kv_type_from_name(std::string_view name);

// Bytes of `elements` neighbours of one token and KV head. INT8 adds one f32 scale.
Bytes kv_row_bytes(KvType type, std::int64_t elements);

}  // namespace plimsoll
