#include "shared/model/dtype.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "shared/base/check.h"
#include "shared/model/gguf_type.h"

namespace plimsoll {
namespace {

constexpr std::array kTypes = {
    DTypeInfo{DType::f32, "F32", 1, 4},       DTypeInfo{DType::f16, "F16", 1, 2},
    DTypeInfo{DType::bf16, "BF16", 1, 2},     DTypeInfo{DType::q4_0, "Q4_0", 32, 18},
    DTypeInfo{DType::q4_1, "Q4_1", 32, 20},   DTypeInfo{DType::q5_0, "Q5_0", 32, 22},
    DTypeInfo{DType::q5_1, "Q5_1", 32, 24},   DTypeInfo{DType::q8_0, "Q8_0", 32, 34},
    DTypeInfo{DType::q4_k, "Q4_K", 256, 144}, DTypeInfo{DType::q5_k, "Q5_K", 256, 176},
    DTypeInfo{DType::q6_k, "Q6_K", 256, 210},
};

const DTypeInfo* find_type(std::uint32_t id) {
  const auto* found = std::ranges::find(kTypes, static_cast<DType>(id), &DTypeInfo::dtype);
  return found == kTypes.end() ? nullptr : found;
}

}  // namespace

// Of what is only planned for, too.
const DTypeInfo& dtype_info(DType dtype) {
  const auto id = static_cast<std::uint32_t>(dtype);
  const DTypeInfo* info = find_type(id);
  if (info == nullptr) info = find_planned_type(id);
  CHECK(info != nullptr);
  return *info;
}

std::optional<DType> dtype_from_gguf(std::uint32_t id) {
  const DTypeInfo* info = find_type(id);
  return info == nullptr ? std::nullopt : std::optional(info->dtype);
}

std::string gguf_type_name(std::uint32_t id) {
  if (const DTypeInfo* info = find_type(id)) return std::string(info->name);
  if (const DTypeInfo* info = find_planned_type(id)) return std::string(info->name);
  return fmt::format("type {}", id);
}

std::span<const DTypeInfo> all_dtypes() { return kTypes; }

Bytes stored_bytes(DType dtype, std::int64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  CHECK(elements >= 0 && elements % info.block_length == 0);
  return elements / info.block_length * info.block_bytes;
}

// Blocks are regrouped for the kernels, never widened: a packed block has its stored bytes.
Bytes packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols) {
  return round_up(rows, kPackedRows) * stored_bytes(dtype, cols);
}

}  // namespace plimsoll
