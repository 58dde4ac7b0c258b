// GgufSpec: a ModelSpec out of a GGUF file's metadata, of every family that can be described.
#pragma once

#include "shared/base/result.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

// Errors: an architecture that we do not know (names those that we do), missing or odd metadata, a
// weight whose shape contradicts them.
Result<ModelSpec> describe_gguf(const GgufFile& file);

// The same without ModelSpec::groups, for those who check the weights first.
Result<ModelSpec> describe_gguf_sizes(const GgufFile& file);

}  // namespace plimsoll
