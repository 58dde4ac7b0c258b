// Requantise: a GGUF file whose matrices are of another type, for comparing types on a real model,
// or that has its first layers alone, for where it must be small.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/result.h"
#include "shared/model/dtype.h"
#include "shared/model/gguf.h"

namespace plimsoll {

// The bytes of the same model with every quantised matrix but the embedding dequantised and
// quantised anew, or as that type's stand-in where its blocks do not divide a row (quantise.h).
// What a file lost by its first quantisation stays lost: good for comparing runs of one file.
Result<std::string> requantise(const GgufFile& file, DType type);

// The bytes of the same model with its first `layers` layers: it computes as before, and says
// noise. Errors: not so many layers; no GGUF file of a model.
Result<std::string> keep_layers(const GgufFile& file, std::int64_t layers);

}  // namespace plimsoll
