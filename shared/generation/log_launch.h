// LogLaunch: a launch out of another server's log, for compare_launches(), and a judge that knows
// what its options do to KV.
#pragma once

#include <string>

#include "shared/generation/launch_diff.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// Options by our names. `place` of a value that the server chose: "from that log".
LaunchFacts launch_of_log(const ForeignLog& log, const std::string& label);

// Beside a generation of ours: its figures get the names that ours have.
void name_figures_like_ours(LaunchFacts& log);

// By each server's own rule, with the figures of one log throughout; of two logs of one server.
// Both must outlive the judge. Either may be null, for a generation of ours: `own` are its facts,
// and KV is then what each of the two had, where their weights are of one size.
LaunchJudge judge_of_logs(const ForeignLog* before, const ForeignLog* after,
                          const LaunchFacts* own = nullptr);

}  // namespace plimsoll
