// GgufHeader: the metadata and tensor infos at the start of a GGUF file, parsed and checked.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

// Bounds on what a header may ask us to hold. Real files stay far below: a vocabulary has some
// 10^5 strings, and the largest chat templates some 10^5 bytes.
constexpr std::uint64_t kGgufPairsMax = 1U << 16;
constexpr std::uint64_t kGgufTensorsMax = 1U << 20;
constexpr std::uint64_t kGgufKeyBytesMax = 65535;
constexpr std::uint64_t kGgufNameBytesMax = 255;
constexpr std::uint64_t kGgufStringBytesMax = 64U << 20;
constexpr std::uint64_t kGgufElementsMax = 1U << 25;  // of all arrays of one file together
// Of all keys and string values of one file together, each with the std::string that holds it.
constexpr std::uint64_t kGgufStringsBytesMax = std::uint64_t{512} << 20;
constexpr std::uint32_t kGgufDimensionsMax = 4;

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  WeightIndex weights;
};

// `bytes` is the whole file: each weight's data is checked to lie inside.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> bytes,
                                     std::uint64_t strings_bytes_max = kGgufStringsBytesMax);

}  // namespace plimsoll
