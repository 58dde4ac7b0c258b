// LogLaunch: a launch out of another server's log, for compare_launches(), and a judge that knows
// what its options do to KV.
#pragma once

#include <string>

#include "shared/generation/launch_diff.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// Options by our names. `place` of a value that the server chose: "from that log".
LaunchFacts launch_of_log(const ForeignLog& log, const std::string& label);

// By each server's own rule, with the figures of one log throughout; of two logs of one server.
// Both must outlive the judge. Either may be null: then the other's figures serve.
LaunchJudge judge_of_logs(const ForeignLog* before, const ForeignLog* after);

}  // namespace plimsoll
