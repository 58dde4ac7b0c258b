// Safetensors: the header of a safetensors file: a u64 length, that many bytes of JSON, then data.
//
// Everything is checked against the file's size before it is used: tensors must lie inside, be as
// long as their shapes say, and neither overlap nor leave holes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/weight_groups.h"

namespace plimsoll {

// The format's own bound on a header.
constexpr std::uint64_t kSafetensorsHeaderMax = 100'000'000;

struct SafetensorsHeader {
  std::vector<Tensor> tensors;        // as listed
  std::vector<std::uint64_t> begins;  // of each, from the start of the file
};

// `start` is the beginning of the file, at least its header; `file_bytes` is the size of all of it.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> start,
                                            std::uint64_t file_bytes);

// Reads no more than the header.
Result<SafetensorsHeader> read_safetensors(const std::filesystem::path& path);

}  // namespace plimsoll
