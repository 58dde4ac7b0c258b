// GgufSpec: a ModelSpec out of a GGUF file's metadata, of every family that can be described.
#pragma once

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

// `weights` are the file's, or those of all files where the model is divided over several. Errors:
// an architecture that we do not know (names those that we do), missing or odd metadata, a weight
// whose shape contradicts them.
Result<ModelSpec> describe_gguf(const GgufFile& file, const WeightIndex& weights);

// The same without ModelSpec::groups, for those who check the weights first.
Result<ModelSpec> describe_gguf_sizes(const GgufFile& file, const WeightIndex& weights);

}  // namespace plimsoll
