// LogPlan: a launch that a log of SGLang or vLLM tells of, as options of ours, so that our planner
// can replay it with the sizes that were measured there.
#pragma once

#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/memory/foreign_log/foreign_log.h"
#include "shared/options/option_set.h"

namespace plimsoll {

struct LogOption {
  std::string name;  // "mem-fraction-static"
  std::string value;
};

// Layout, sizes and limits; `assume` has what was free and what weights took (of vLLM also the
// device's total, activations and graphs), `devices` simulated ones of that size.
std::vector<LogOption> options_of_log(const ForeignLog& log);

// What of its layout no option of ours takes, a sentence each: attention in data parallel, pipeline
// stages, experts over ranks; and what its server asks for besides.
std::vector<std::string> log_plan_notes(const ForeignLog& log);

// Where `options` say nothing themselves, the log's, of origin `label`. What it says in a way that
// no option of ours takes is left out.
OptionSet with_log_options(OptionSet options, const ForeignLog& log, const std::string& label);

// What of the log is not taken, since an option says otherwise. `given`: before the log's were
// added.
std::vector<std::string> log_replay_notes(const OptionSet& given, const ForeignLog& log);

}  // namespace plimsoll
