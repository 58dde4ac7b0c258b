#include "shared/memory/model_input.h"

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "shared/model/gguf.h"
#include "shared/model/model_source.h"
#include "shared/tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

// "meta-llama/Llama-3.1-8B-Instruct": what other servers fetch by themselves.
bool is_hub_name(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path name(path);
  const bool has_owner = std::distance(name.begin(), name.end()) == 2 && name.is_relative();
  return has_owner && !path.starts_with('.') && !path.starts_with('~') &&
         !path.ends_with(".gguf") && !path.ends_with(".json") &&
         !std::filesystem::exists(name, ignored) &&
         !std::filesystem::exists(name.parent_path(), ignored);
}

Status check_is_path(std::string_view option, const std::string& path) {
  if (!is_hub_name(path)) return {};
  return not_found(
      fmt::format("{}: there is no {} here; models are files and folders, nothing is fetched by "
                  "its name: give the path of its GGUF file, or for a plan on GPUs of its "
                  "config.json or of the folder that has it",
                  option, path));
}

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
  TRY(check_is_path("model", options.model));
  TRY(check_is_path("draft-model", options.draft_model));
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
