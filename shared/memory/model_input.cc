#include "shared/memory/model_input.h"

#include <filesystem>
#include <string>
#include <system_error>

#include "shared/model/gguf.h"
#include "shared/model/model_source.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

Result<ModelSpec> read_runnable(const std::string& path) {
  std::error_code ignored;  // what cannot be looked at is told of when it is opened
  if (std::filesystem::is_directory(path, ignored)) {
    return invalid("model: " + path +
                   " is a folder; CPU ranks load one GGUF file, so name that file (a folder of "
                   "safetensors can be planned for GPUs: plimsoll plan --devices simulated:SIZE)");
  }
  const GgufFile file = TRY(GgufFile::open(path));
  const std::string context = "model " + path + ": ";
  ModelSpec model = TRY_CONTEXT(context, read_model_spec(file));
  // The router reads it: better refused here than after the weights are loaded.
  TRY_CONTEXT(context, check_tokenizer(file));
  return model;
}

}  // namespace

Result<PlanModels> read_plan_models(const Options& options, const Machine& machine) {
  if (options.model.empty()) return invalid("model: no file is named; give the path of one");
  PlanModels models;
  const bool on_cpu = machine.devices.empty();
  models.model = on_cpu ? TRY(read_runnable(options.model))
                        : TRY_CONTEXT("model " + options.model + ": ", read_model(options.model));
  if (!options.draft_model.empty() && !on_cpu) {
    models.draft =
        TRY_CONTEXT("draft-model " + options.draft_model + ": ", read_model(options.draft_model));
  }
  return models;
}

}  // namespace plimsoll
