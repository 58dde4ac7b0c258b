#include "tools/cli/cli.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/json.h"
#include "shared/base/text.h"
#include "shared/options/folders.h"
#include "shared/options/option_parse.h"
#include "tools/cli/command_line.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/operation.h"

namespace plimsoll {
namespace {

constexpr std::size_t kConfigBytesMax = 1024 * 1024;

// The text goes to stderr, and what a program reads to stdout.
int fail(Console& console, bool json, const std::string& who, const Error& error, int code) {
  if (json) {
    console.out << dump_json(Json::object({{"exit_code", code}, {"message", error.message}}), 2)
                << std::endl;
  }
  console.err << who << ": " << error.message << std::endl;
  return code;
}

// Also of words that are no command line.
bool asks_for_json(std::span<const std::string> words) {
  const auto end = std::ranges::find(words, "--");
  return std::find(words.begin(), end, "--json") != end;
}

Result<OptionSources> sources_of(const CommandLine& line) {
  std::vector<const char*> arguments = {"plimsoll"};
  for (const std::string& flag : line.option_flags) arguments.push_back(flag.c_str());
  if (!line.config.empty()) {
    arguments.push_back("--config");
    arguments.push_back(line.config.c_str());
  }
  return process_sources(static_cast<int>(arguments.size()), arguments.data());
}

// The line "NAME = VALUE" of a configuration file, else "".
std::string value_in_file(const OptionSources& sources, std::string_view name) {
  const std::filesystem::path file = sources.file ? *sources.file : default_folders().config_file;
  const Result<std::string> text = read_file(file, kConfigBytesMax);
  if (!text) return "";
  for (const std::string_view line : split(*text, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || trim(line.substr(0, equals)) != name) continue;
    const Result<OptionSet> set = parse_option_text(line, file.string());
    if (!set) return "";
    return name == "runtime-dir" ? set->values.runtime_dir : set->values.state_dir;
  }
  return "";
}

// The two folders alone, by which a daemon is found: what else is wrong with a configuration is no
// reason not to show or stop what runs.
OptionSources only_folders(const OptionSources& sources) {
  OptionSources folders{.flags = sources.flags, .environment = {}, .file = "/dev/null"};
  for (const auto& [name, variable] : {std::pair{"runtime-dir", "PLIMSOLL_RUNTIME_DIR"},
                                       std::pair{"state-dir", "PLIMSOLL_STATE_DIR"}}) {
    std::string value = value_in_file(sources, name);
    for (const auto& [given, text] : sources.environment) {
      if (given == variable) value = text;
    }
    if (!value.empty()) folders.environment.emplace_back(variable, value);
  }
  return folders;
}

// A verb that takes no options needs but the folders of a daemon that runs.
Result<OptionSet> options_for(const Verb& verb, const OptionSources& sources, Console& console) {
  // These say nothing about an instance, so a mistake in its configuration is none of theirs.
  if (verb.name == "help" || verb.name == "version") return OptionSet{};
  Result<OptionSet> options = parse_options(sources);
  if (options || verb.takes_options) return options;
  Result<OptionSet> folders = parse_options(only_folders(sources));
  if (!folders || !is_daemon_listening(runtime_folder(folders->values))) return options;
  console.err << fmt::format("plimsoll {}: the configuration has mistakes: {}\n", verb.name,
                             options.error().message);
  return folders;
}

}  // namespace

int run_cli(std::span<const std::string> words, Console& console) {
  if (words.empty()) {
    console.err << usage();
    return kExitUsage;
  }
  const Result<CommandLine> line = parse_command_line(words);
  if (!line) {
    // The name of an option is configuration, wherever it comes from; the rest is usage.
    const bool is_name = line.error().code == Code::not_found;
    const int code = is_name ? exit_code(Code::not_found) : kExitUsage;
    return fail(console, asks_for_json(words), "plimsoll", line.error(), code);
  }
  if (line->help) {
    const Verb* verb = find_verb(line->verb);
    print_text(console, line->json, verb == nullptr ? usage() : verb_usage(*verb));
    return kExitOk;
  }
  const auto failed = [&](const std::string& who, const Error& error) {
    return fail(console, line->json, who, error, exit_code(error.code));
  };
  const std::string who = fmt::format("plimsoll {}", line->verb);
  const Result<OptionSources> sources = sources_of(*line);
  if (!sources) return failed(who, sources.error());
  const Verb& verb = *find_verb(line->verb);
  const Result<OptionSet> options = options_for(verb, *sources, console);
  if (!options) return failed(who, options.error());
  const Result<int> code = verb.run({*line, *sources, *options, console});
  console.out << std::flush;
  return code ? *code : failed(who, code.error());
}

}  // namespace plimsoll
