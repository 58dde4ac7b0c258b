// Operation: a command to the daemon that takes long: sent, watched, reported.
#pragma once

#include <filesystem>
#include <string>

#include "shared/base/json.h"
#include "shared/control/messages.h"
#include "tools/cli/verb.h"

namespace plimsoll {

// Sends it and shows progress until the reply. Errors: as DaemonClient::ask().
Result<Reply> run_operation(const Invocation& call, const Command& command);

// Prints a reply (its message, or JSON with exit_code, message and the result's members) and
// returns its exit code. A refusal's message goes to stderr.
int report_reply(const Invocation& call, const Reply& reply);

// A mistake in a call, found by the verb itself: as report_reply(), with exit code 2.
int report_misuse(const Invocation& call, const std::string& message);
// The value of a flag that the verb cannot read: with exit code 78, as for options.
int report_bad_value(const Invocation& call, const std::string& message);

// Text as it is, or {"text": ...}.
void print_text(Console& console, bool json, const std::string& text);

// "no daemon runs in ...", exit code 4; where this user may not know that, 1 and why.
int report_not_running(const Invocation& call);

std::filesystem::path runtime_of(const Invocation& call);
bool is_daemon_running(const Invocation& call);

}  // namespace plimsoll
