// Requantise: a GGUF file whose matrices are of another type, for comparing types on a real model.
#pragma once

#include <string>

#include "shared/base/result.h"
#include "shared/model/dtype.h"
#include "shared/model/gguf.h"

namespace plimsoll {

// The bytes of the same model with every quantised matrix but the embedding dequantised and
// quantised anew, or as that type's stand-in where its blocks do not divide a row (quantise.h).
// What a file lost by its first quantisation stays lost: good for comparing runs of one file.
Result<std::string> requantise(const GgufFile& file, DType type);

}  // namespace plimsoll
