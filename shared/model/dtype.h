// DType: element and quantised block types of weights: names, block length, bytes.
//
// Numbers are GGUF's type ids (ggml), so that a file's id is cast after one check. Only the types
// that we can run are listed; the rest of GGUF's ids have a name for error messages, nothing more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/units.h"

namespace plimsoll {

enum class DType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;      // "Q4_1", as GGUF tools print it
  std::int64_t block_length;  // elements of one block, along a row
  std::int64_t block_bytes;   // as stored in a file
};

const DTypeInfo& dtype_info(DType dtype);
std::optional<DType> dtype_from_gguf(std::uint32_t id);  // nullopt: not one that we run
std::string gguf_type_name(std::uint32_t id);            // also of types that we do not run
std::span<const DTypeInfo> all_dtypes();                 // for lists in messages and for tests

// Bytes of `elements` consecutive elements in a file. REQUIRES: a multiple of the block length.
Bytes stored_bytes(DType dtype, std::int64_t elements);

// Rows of a packed matrix come in groups of this many: two AVX2 registers of eight, one AVX-512
// register of sixteen 32-bit lanes. Packed matrices are padded with zero rows up to a multiple.
constexpr std::int64_t kPackedRows = 16;

// Tokens of one KV block: the page of the KV cache (kernels/backend.h) and the plan's unit.
constexpr std::int64_t kKvBlockTokens = 32;

// Bytes that a [rows, cols] weight takes once packed for the CPU kernels (kernels/cpu/pack.h). The
// same on every instruction set, so that the memory plan can state it without knowing the machine.
Bytes packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols);

}  // namespace plimsoll
