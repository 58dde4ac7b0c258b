// ModelSource: the ModelSpec of whatever --model names: a GGUF file, a folder of Hugging Face files
// (config.json, model.safetensors.index.json, *.safetensors), or a config.json alone.
//
// Only headers are read. What is described can be planned; whether it can be run is another
// question (runnable.h).
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

Result<ModelSpec> read_model(const std::filesystem::path& path);

}  // namespace plimsoll
