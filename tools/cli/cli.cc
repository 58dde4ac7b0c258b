#include "tools/cli/cli.h"

#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "tools/cli/command_line.h"

namespace plimsoll {
namespace {

int fail(Console& console, const std::string& who, const Error& error) {
  console.err << who << ": " << error.message << std::endl;
  return exit_code(error.code);
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

}  // namespace

int run_cli(std::span<const std::string> words, Console& console) {
  if (words.empty()) {
    console.err << usage();
    return kExitUsage;
  }
  const Result<CommandLine> line = parse_command_line(words);
  if (!line) {
    console.err << "plimsoll: " << line.error().message << std::endl;
    return kExitUsage;
  }
  if (line->help) {
    const Verb* verb = find_verb(line->verb);
    console.out << (verb == nullptr ? usage() : verb_usage(*verb)) << std::flush;
    return kExitOk;
  }
  const std::string who = fmt::format("plimsoll {}", line->verb);
  const Result<OptionSources> sources = sources_of(*line);
  if (!sources) return fail(console, who, sources.error());
  const Verb& verb = *find_verb(line->verb);
  // These say nothing about an instance, so a mistake in its configuration is none of theirs.
  const bool is_plain = verb.name == "help" || verb.name == "version";
  const Result<OptionSet> options = is_plain ? OptionSet{} : parse_options(*sources);
  if (!options) return fail(console, who, options.error());
  const Result<int> code = verb.run({*line, *sources, *options, console});
  console.out << std::flush;
  return code ? *code : fail(console, who, code.error());
}

}  // namespace plimsoll
