// Reconfigure: what a command asks to change: the next options, what they change, and by which path
// they get into operation. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/launch_plan.h"
#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/options/option_diff.h"
#include "shared/options/option_set.h"

namespace plimsoll {

enum class ChangePath {
  none,     // nothing changes
  live,     // applied in place
  beside,   // each new replica starts beside the one whose place it takes
  rolling,  // one replica at a time ends and starts again, the others serve
  hold,     // all replicas end and start again, the router holds who comes meanwhile
  restart,  // the router starts again too; who comes meanwhile waits in the listening socket
};

struct ReconfigureRequest {
  std::vector<std::pair<std::string, std::string>> assignments;  // name, value
  std::optional<OptionSet> file;         // what a configuration file says now
  std::string file_path;                 // and its absolute path
  std::optional<OptionSet> whole;        // of an earlier generation
  std::optional<std::int64_t> based_on;  // the generation that whoever asks has seen
  std::optional<ChangePath> path;        // that it has to take
  std::string cause = "reconfigure";
  bool is_dry_run = false;
};
// Of a Command's arguments: "assignments", "file_options", "options", "based_on", "cause",
// "path", "dry_run". Errors: invalid.
Result<ReconfigureRequest> read_reconfigure(const Json& arguments);
// Of a Command's "path". Errors: invalid.
Result<std::optional<ChangePath>> read_path(const Json& arguments);

// `present` are the options in operation, `given` what the daemon was started with: a file's values
// count where neither a flag nor a variable was given then. Folders stay the daemon's own. Errors:
// invalid, one line a mistake.
Result<OptionSet> next_options(const OptionSet& present, const OptionSet& given,
                               const ReconfigureRequest& request);

// What a daemon with those flags and variables would be given, were it started with that file.
OptionSet with_file(const OptionSet& given, const OptionSet& file);

const char* change_path_name(ChangePath path);

// The best path that this change can take, or whether it can take the one that is wanted.
struct PathInput {
  const OptionDiff& diff;
  const LaunchPlan* present = nullptr;  // of the replicas that run; null: none serve yet
  const LaunchPlan* next = nullptr;     // null: only what the options alone tell
  std::optional<ChangePath> wanted = {};
  // Of the replicas of `present`, where some were left out or have failed; nothing: all.
  std::optional<std::int64_t> running = {};
};
// Errors: invalid, where the wanted path does not do.
Result<ChangePath> choose_path(const PathInput& input);

// [{name, before, after, effect}]
Json changes_to_json(const OptionDiff& diff);

}  // namespace plimsoll
