// ModelInput: reads what the plan must know of the model and its draft: headers, no weights.
#pragma once

#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/model/model_spec.h"
#include "shared/options/options.h"

namespace plimsoll {

struct PlanModels {
  ModelSpec model;
  std::optional<ModelSpec> draft;
  const ModelSpec* draft_or_null() const { return draft ? &*draft : nullptr; }
};

// CPU ranks run what they plan, so their model is a GGUF file whose tokenizer we can read too.
// Errors: of the files, with the option's path before them.
Result<PlanModels> read_plan_models(const Options& options, const Machine& machine);

}  // namespace plimsoll
