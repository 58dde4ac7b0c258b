#include "shared/model/kv_type.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

struct KvTypeRow {
  KvType type;
  const char* name;
  Bytes element_bytes;
  Bytes row_bytes;  // beside the elements: scales
};

constexpr std::array kTypes = {
    KvTypeRow{KvType::f16, "f16", 2, 0},
    KvTypeRow{KvType::bf16, "bf16", 2, 0},
    KvTypeRow{KvType::fp8, "fp8", 1, 0},
    KvTypeRow{KvType::int8, "int8", 1, 4},
};

const KvTypeRow& row_of(KvType type) { return *std::ranges::find(kTypes, type, &KvTypeRow::type); }

}  // namespace

const char* kv_type_name(KvType type) { return row_of(type).name; }

std::optional<KvType> kv_type_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &KvTypeRow::name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

Bytes kv_row_bytes(KvType type, std::int64_t elements) {
  const KvTypeRow& row = row_of(type);
  return elements * row.element_bytes + row.row_bytes;
}

}  // namespace plimsoll
