#include "shared/model/gguf_split.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

std::string suffix_of(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

Status add_weights(const GgufFile& file, WeightIndex& weights) {
  for (const auto& [name, weight] : file.weights().all()) {
    if (weights.add(weight)) continue;
    return invalid(fmt::format("the weight {} is in an earlier part too", to_valid_utf8(name)));
  }
  return {};
}

Status check_part(const GgufFile& file, GgufPart expected) {
  const std::optional<GgufPart> part = TRY(gguf_part(file));
  if (part && part->number == expected.number && part->count == expected.count) return {};
  return invalid(
      fmt::format("it says that it is {}; expected part {} of {}",
                  part ? fmt::format("part {} of {}", part->number, part->count) : "a whole model",
                  expected.number, expected.count));
}

}  // namespace

Result<std::optional<GgufPart>> gguf_part(const GgufFile& file) {
  const std::int64_t count = TRY(file.int_or("split.count", 0));
  const std::int64_t index = TRY(file.int_or("split.no", 0));
  if (count == 0 || count == 1) return std::optional<GgufPart>();
  if (count < 0 || count > kGgufPartsMax || index < 0 || index >= count) {
    return invalid(fmt::format(
        "GGUF metadata split.no is {} and split.count is {}; expected parts from 0, at most {}",
        index, count, kGgufPartsMax));
  }
  return std::optional(GgufPart{index + 1, count});
}

Result<WeightIndex> read_split_weights(const std::filesystem::path& path, const GgufFile& first,
                                       GgufPart part) {
  const std::string name = path.filename().string();
  const std::string suffix = suffix_of(part.number, part.count);
  if (!name.ends_with(suffix)) {
    return invalid(
        fmt::format("the file is part {} of {} (split.count), and its name does not end in {}, by "
                    "which the others would be found",
                    part.number, part.count, suffix));
  }
  const std::string stem = name.substr(0, name.size() - suffix.size());
  if (part.number != 1) {
    return invalid(fmt::format("the file is part {} of {}; name the first, {}", part.number,
                               part.count, stem + suffix_of(1, part.count)));
  }
  WeightIndex weights = first.weights();
  for (std::int64_t number = 2; number <= part.count; ++number) {
    const std::filesystem::path other = path.parent_path() / (stem + suffix_of(number, part.count));
    const GgufFile file = TRY(GgufFile::open(other));
    const std::string context = other.string() + ": ";
    TRY_CONTEXT(context, check_part(file, {number, part.count}));
    TRY_CONTEXT(context, add_weights(file, weights));
  }
  const std::int64_t said = TRY(first.int_or("split.tensors.count", 0));
  if (said == 0 || said == std::ssize(weights.all())) return weights;
  return invalid(fmt::format("the {} parts hold {} weights together; the first says {}", part.count,
                             weights.all().size(), said));
}

}  // namespace plimsoll
