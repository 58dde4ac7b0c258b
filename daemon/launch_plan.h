// LaunchPlan: what the supervisor needs to know of a planned deployment: its options and its sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/model_identity.h"
#include "shared/base/json.h"
#include "shared/base/units.h"
#include "shared/control/messages.h"
#include "shared/generation/launch_diff.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/option_parse.h"

namespace plimsoll {

struct LaunchPlan {
  OptionSet options;
  Json options_json;  // option_set_to_json
  Json plan_json;     // memory_plan_to_json
  MemoryPlan memory;
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  Blocks kv_blocks = 0;
  Tokens context_length = 0;
  std::string served_model_name;
  ModelIdentity model_identity;     // of the files that were planned with
  std::vector<Bytes> rank_bytes;    // planned; replica by replica, rank by rank
  std::vector<Bytes> weight_bytes;  // the weights' part of it
  // By rank of a replica: the weights are in memory already, as those that run now map them.
  std::vector<bool> shares_weights;
  std::vector<Bytes> simulated_memory = {};  // by rank: free on its device, where that is simulated
  Bytes memory_available = 0;                // for all ranks, were none of ours there; 0: not known
  std::vector<std::string> notes;
  Json collectives = {};  // of an earlier launch like this one, to be checked; null: there is none
  std::vector<Setting> environment;  // read_fingerprint
  std::optional<Error> refusal;      // it does not fit: then the plan is only for people
};

// The part of the options that running processes take over as it is.
SetLive live_settings(const Options& options);

}  // namespace plimsoll
