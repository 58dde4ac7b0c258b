// OptionParse: flags, environment and configuration file into Options, with provenance.
//
// Precedence: default < file < environment (PLIMSOLL_PORT) < flag (--port) < reconfigured. All
// mistakes are reported at once, each with its place and, for an unknown name, the nearest one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/result.h"
#include "shared/options/folders.h"
#include "shared/options/option_set.h"
#include "shared/options/options.h"

namespace plimsoll {

struct OptionSources {
  std::vector<std::string> flags;                                // "--port", "8001", "--tp=2"
  std::vector<std::pair<std::string, std::string>> environment;  // only PLIMSOLL_* are read
  // Must exist where given; unset: the default file, where there is one.
  std::optional<std::filesystem::path> file;
};

// The process's own flags and environment. `--config FILE` is taken out of the flags; without it
// PLIMSOLL_CONFIG names the file.
Result<OptionSources> process_sources(int argc, const char* const* argv);

// An option that is set twice in the file, or by two variables, is a mistake; of two flags the last
// counts, so that scripts can append. PLIMSOLL_CACHE (the folder of the fetch scripts) is no option
// and allowed. Errors: Code::invalid, one line a mistake.
Result<OptionSet> parse_options(const OptionSources& sources);

// A configuration file's content alone; `file` is its name in messages.
Result<OptionSet> parse_option_text(std::string_view content, const std::string& file);

}  // namespace plimsoll
