// LayoutChoice: how many ranks and replicas, where `--tp auto` or `--dp auto` leaves it to us.
// Pure.
//
// On CPUs: the layout that was measured to be clearly faster here, if two or more were measured
// under like load; else a replica for each memory node, ranks over the nodes where replicas do not
// fit, one rank on a machine of one node. On GPUs: as few ranks as hold the model with its context,
// and as many replicas as there are devices for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/model/model_spec.h"
#include "shared/options/option_set.h"

namespace plimsoll {

// What an earlier launch of the model on this machine reached.
struct LayoutSpeed {
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::int64_t requests = 0;  // that ran in its best second
  double tokens_per_second = 0;
  std::string from = {};  // "generation 7"
};

struct LayoutChoice {
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::string why = {};  // a sentence: a note of the plan; "" where nothing was left to us
};

bool is_layout_auto(const Options& options);

// The layout that was given, or what is chosen for what was left open. One that does not fit either
// is chosen where none fits: its plan says so. Errors: as plan_memory().
Result<LayoutChoice> choose_layout(const Machine& machine, const ModelSpec& model,
                                   const OptionSet& options, const ModelSpec* draft,
                                   std::span<const LayoutSpeed> measured);

// The options with that layout in place of `auto`.
OptionSet with_layout(OptionSet options, const LayoutChoice& choice);

}  // namespace plimsoll
