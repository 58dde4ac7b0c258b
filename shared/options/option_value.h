// OptionValue: one setting's value as text and as JSON, read and written by its row.
#pragma once

#include <string>
#include <string_view>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/options/option_table.h"

namespace plimsoll {

// Errors: Code::invalid, with what was found and what is allowed, without the option's name.
Status set_option(Options& options, const OptionRow& row, std::string_view text);
// Reads back as the same value: "auto", "8000", "1536MiB", "250ms".
std::string option_text(const Options& options, const OptionRow& row);

// Counts are integers, sizes bytes, durations milliseconds, `auto` that word.
Json option_json(const Options& options, const OptionRow& row);
Status set_option_json(Options& options, const OptionRow& row, const Json& value);

// "0 to 65535", "int8 or f32", "1s to 24h, or auto": what a setting may be, for messages and pages.
std::string option_allowed(const OptionRow& row);

std::string format_duration(milliseconds duration);          // "250ms", "10s", "5min"
Result<milliseconds> parse_duration(std::string_view text);  // the same, and "1.5s", "2h"
std::string format_exact_bytes(Bytes bytes);                 // "1536MiB", "513B"

}  // namespace plimsoll
