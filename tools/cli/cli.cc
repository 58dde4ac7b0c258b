#include "tools/cli/cli.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "shared/base/json.h"
#include "tools/cli/command_line.h"
#include "tools/cli/operation.h"

namespace plimsoll {
namespace {

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
  // These say nothing about an instance, so a mistake in its configuration is none of theirs.
  const bool is_plain = verb.name == "help" || verb.name == "version";
  const Result<OptionSet> options = is_plain ? OptionSet{} : parse_options(*sources);
  if (!options) return failed(who, options.error());
  const Result<int> code = verb.run({*line, *sources, *options, console});
  console.out << std::flush;
  return code ? *code : failed(who, code.error());
}

}  // namespace plimsoll
