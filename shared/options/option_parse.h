// OptionParse: flags, environment and configuration file into Options, with provenance.
//
// Precedence: default < file < environment (PLIMSOLL_PORT) < flag (--port) < reconfigured. All
// mistakes are reported at once, each with its place and, for an unknown name, the nearest one.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/options/options.h"

namespace plimsoll {

enum class Source { built_in, file, environment, flag, reconfigured };

struct Origin {
  Source source = Source::built_in;
  std::string place;  // "plimsoll.conf:12", "PLIMSOLL_PORT", "--port"; empty for a default
};

struct OptionSet {
  Options values;
  std::map<std::string, Origin, std::less<>> origins;  // by option name; absent: built in
};

struct OptionSources {
  std::vector<std::string> flags;                                // "--port", "8001", "--tp=2"
  std::vector<std::pair<std::string, std::string>> environment;  // only PLIMSOLL_* are read
  // Must exist where given; unset: the default file, where there is one.
  std::optional<std::filesystem::path> file;
};

// The process's own flags and environment. `--config FILE` is taken out of the flags.
Result<OptionSources> process_sources(int argc, const char* const* argv);

// Errors: Code::invalid, one line a mistake.
Result<OptionSet> parse_options(const OptionSources& sources);

// The set after `name=value` assignments (reconfigure); their origin becomes Source::reconfigured.
Result<OptionSet> change_options(const OptionSet& current,
                                 std::span<const std::pair<std::string, std::string>> assignments);

// {"port": {"value": 8000, "source": "flag", "place": "--port"}, ...}: all options, in table order.
Json option_set_to_json(const OptionSet& set);
Result<OptionSet> option_set_from_json(const Json& json);

struct Folders {
  std::filesystem::path config_file;  // /etc/plimsoll/plimsoll.conf, else XDG
  std::filesystem::path runtime;      // /run/plimsoll, else $XDG_RUNTIME_DIR/plimsoll
  std::filesystem::path state;        // /var/lib/plimsoll, else $XDG_STATE_HOME/plimsoll
};
Folders default_folders();
std::filesystem::path runtime_folder(const Options& options);
std::filesystem::path state_folder(const Options& options);

}  // namespace plimsoll
