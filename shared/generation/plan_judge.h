// PlanJudge: what each changed option does to memory: the plan is made again with that one option
// as it was before.
#pragma once

#include "shared/generation/launch_diff.h"
#include "shared/machine/machine.h"
#include "shared/model/model_spec.h"
#include "shared/options/option_set.h"

namespace plimsoll {

struct PlanJudgement {
  const Machine& machine;
  const ModelSpec& model;  // of `after`
  const ModelSpec* draft = nullptr;
  OptionSet before;
  OptionSet after;
};

// Of differences between options of ours; it outlives what the references name no longer than they
// do.
LaunchJudge plan_judge(const PlanJudgement& facts);

}  // namespace plimsoll
