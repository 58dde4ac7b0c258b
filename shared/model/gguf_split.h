// GgufSplit: a model that is divided over several GGUF files, "m-00001-of-00003.gguf" and so on.
//
// The first has the metadata; each has some of the weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/weight_index.h"

namespace plimsoll {

constexpr std::int64_t kGgufPartsMax = 4096;

struct GgufPart {
  std::int64_t number = 0;  // from 1
  std::int64_t count = 0;
};

// nullopt: the file is the whole model. Errors: numbers that no part can have.
Result<std::optional<GgufPart>> gguf_part(const GgufFile& file);

// Those of all parts, by the headers of the files beside `path`, which is `first`. Errors: it is
// not part 1, a name that does not say which part it is, a part that is missing, damaged or of
// another model, a weight that two parts have.
Result<WeightIndex> read_split_weights(const std::filesystem::path& path, const GgufFile& first,
                                       GgufPart part);

}  // namespace plimsoll
