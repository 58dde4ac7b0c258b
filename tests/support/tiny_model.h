// TinyModel: small models for tests, written by tools/tiny_model in process.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {

// Writes the model as FOLDER/tiny.gguf and gives that path.
Result<std::filesystem::path> write_tiny_model(const TinyModel& shape,
                                               const std::filesystem::path& folder);

}  // namespace plimsoll
