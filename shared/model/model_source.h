// ModelSource: the ModelSpec of whatever --model names: a GGUF file (of a
// split model the first), a folder of Hugging Face files
// (config.json, model.safetensors.index.json, *.safetensors), or a config.json alone.
//
// Only headers are read. What is described can be planned; whether it can be run is another
// question: read_model_spec() in model_spec.h.
#pragma once

#include <filesystem>
#include <string>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

// Errors: messages do not name `path` throughout; the caller says which option it is from.
Result<ModelSpec> read_model(const std::filesystem::path& path);

// A folder or a config.json, and so without a vocabulary that we read.
bool is_description(const std::filesystem::path& path);

// Of a config.json alone; `name` where it has none.
Result<ModelSpec> spec_of_config(const Json& config, const std::string& name);

}  // namespace plimsoll
