// Reconfigure: what a command asks to change: the next options, what they change, and by which path
// they get into operation. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/options/option_diff.h"
#include "shared/options/option_set.h"

namespace plimsoll {

struct ReconfigureRequest {
  std::vector<std::pair<std::string, std::string>> assignments;  // name, value
  std::optional<OptionSet> file;         // what a configuration file says now
  std::optional<OptionSet> whole;        // of an earlier generation
  std::optional<std::int64_t> based_on;  // the generation that whoever asks has seen
  std::string cause = "reconfigure";
  bool is_dry_run = false;
};
// Of a Command's arguments: "assignments", "file_options", "options", "based_on", "cause",
// "dry_run". Errors: invalid.
Result<ReconfigureRequest> read_reconfigure(const Json& arguments);

// `present` are the options in operation, `given` what the daemon was started with: a file's values
// count where neither a flag nor a variable was given then. Folders stay the daemon's own. Errors:
// invalid, one line a mistake.
Result<OptionSet> next_options(const OptionSet& present, const OptionSet& given,
                               const ReconfigureRequest& request);

// What a daemon with those flags and variables would be given, were it started with that file.
OptionSet with_file(const OptionSet& given, const OptionSet& file);

enum class ChangePath {
  none,     // nothing changes
  live,     // applied in place
  restart,  // running requests are finished, new ones wait, the deployment starts again
};
const char* change_path_name(ChangePath path);
ChangePath change_path(const OptionDiff& diff);

// [{name, before, after, effect}]
Json changes_to_json(const OptionDiff& diff);

}  // namespace plimsoll
