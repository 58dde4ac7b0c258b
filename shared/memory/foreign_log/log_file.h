// LogFile: a log read from disk a piece at a time, however long it is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "shared/base/result.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// In place of a path: what is piped in.
inline constexpr std::string_view kStandardInput = "-";
// What a log is called in texts: its file's name, or "standard input".
std::string log_label(const std::filesystem::path& path);

// Errors: the file cannot be read, or holds no launch of SGLang or vLLM.
Result<ForeignLog> read_foreign_log(const std::filesystem::path& path);

}  // namespace plimsoll
