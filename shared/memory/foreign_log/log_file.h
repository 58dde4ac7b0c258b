// LogFile: a log read from disk a piece at a time, however long it is.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// Errors: the file cannot be read, or holds no launch of SGLang or vLLM.
Result<ForeignLog> read_foreign_log(const std::filesystem::path& path);

}  // namespace plimsoll
