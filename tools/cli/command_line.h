// CommandLine: sorts the words after `plimsoll` by the verb table.
#pragma once

#include <span>
#include <string>

#include "shared/base/result.h"
#include "tools/cli/verb.h"

namespace plimsoll {

// Options of a deployment are not looked at, only collected (a verb that takes none still takes
// --runtime-dir and --state-dir, by which the daemon is found). Errors, for people:
// Code::not_found, a flag that the verb does not have; Code::invalid, any other mistake of usage.
Result<CommandLine> parse_command_line(std::span<const std::string> words);

std::string usage();                       // all verbs
std::string verb_usage(const Verb& verb);  // one verb, its flags and those that all verbs take

}  // namespace plimsoll
