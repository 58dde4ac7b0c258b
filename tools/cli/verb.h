// Verb: one command of plimsoll: what its words are, and the function that carries it out.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/options/option_parse.h"

namespace plimsoll {

// Exit codes beside those of `exit_code(Code)`.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitNotRunning = 4;

struct Console {
  std::ostream& out;
  std::ostream& err;
  std::istream& in;
  bool is_terminal = false;  // of `err`, where progress is shown
  bool has_colour = false;   // of `out`
};

struct CommandLine {
  std::string verb;
  std::vector<std::string> arguments;
  std::map<std::string, std::string, std::less<>> flags;  // the verb's own; "" where without value
  std::vector<std::string> option_flags;                  // for parse_options()
  std::string config;                                     // --config FILE
  bool json = false;
  bool help = false;

  bool has(std::string_view flag) const { return flags.contains(flag); }
};

struct Invocation {
  const CommandLine& line;
  const OptionSources& sources;
  const OptionSet& options;  // of flags, environment and file
  Console& console;
};

struct VerbFlag {
  std::string_view name;   // "max-tokens"
  std::string_view value;  // what stands after it, in help: "N"; empty: nothing does
  std::string_view help;
  std::string_view letter = {};  // "n" for -n
  bool is_argument = false;      // its value is one more argument of the verb
};

struct Verb {
  std::string_view name;
  std::string_view arguments;  // in help
  std::string_view summary;
  std::span<const VerbFlag> flags = {};
  std::size_t arguments_min = 0;
  std::size_t arguments_max = 0;
  bool takes_options = false;  // every option of a deployment as a flag
  // The exit code; errors are printed by the caller, with the code's exit code.
  Result<int> (*run)(const Invocation&) = nullptr;
};

std::span<const Verb> verb_table();
const Verb* find_verb(std::string_view name);

// One a file, verb_NAME.cc.
Result<int> run_start(const Invocation& call);
Result<int> run_stop(const Invocation& call);
Result<int> run_restart(const Invocation& call);
Result<int> run_status(const Invocation& call);
Result<int> run_plan(const Invocation& call);
Result<int> run_explain(const Invocation& call);
Result<int> run_reconfigure(const Invocation& call);
Result<int> run_history(const Invocation& call);
Result<int> run_diff(const Invocation& call);
Result<int> run_rollback(const Invocation& call);
Result<int> run_config(const Invocation& call);
Result<int> run_chat(const Invocation& call);
Result<int> run_logs(const Invocation& call);
Result<int> run_bundle(const Invocation& call);
Result<int> run_version(const Invocation& call);
Result<int> run_help(const Invocation& call);

}  // namespace plimsoll
