#include <ostream>

#include <fmt/format.h>

#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_report.h"
#include "shared/model/gguf.h"
#include "shared/tokenizer/tokenizer.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

Json window_json(const MemoryWindow& window) {
  Json json = Json::object();
  const auto add = [&](std::string_view name, const std::optional<std::int64_t>& end) {
    if (end) json.set(name, *end);
  };
  add("device_memory_min", window.device_memory_min);
  add("context_length_max", window.context_length_max);
  add("max_running_requests_max", window.max_running_requests_max);
  add("chunked_prefill_size_max", window.chunked_prefill_size_max);
  add("max_total_tokens_max", window.max_total_tokens_max);
  return json;
}

}  // namespace

Result<int> run_plan(const Invocation& call) {
  const std::string& path = call.options.values.model;
  if (path.empty()) {
    return invalid(
        "no model is given: set --model FILE, PLIMSOLL_MODEL or `model` in the "
        "configuration file");
  }
  const Machine machine = TRY(find_machine(call.options.values));
  const GgufFile file = TRY(GgufFile::open(path));
  const ModelSpec model = TRY_CONTEXT(fmt::format("model {}: ", path), read_model_spec(file));
  TRY_CONTEXT(fmt::format("model {}: ", path), check_tokenizer(file));
  const MemoryPlan plan = TRY(plan_memory(machine, model, call.options));
  const MemoryWindow window = TRY(plan_window(machine, model, call.options));
  if (call.line.json) {
    Json json = memory_plan_to_json(plan);
    json.set("window", window_json(window));
    call.console.out << dump_json(json, 2) << std::endl;
  } else {
    const std::string ends = plan.refusal ? "" : window_report(window);
    call.console.out << memory_report(plan)
                     << (ends.empty() ? "" : fmt::format("\nwould also fit: {}\n", ends))
                     << std::flush;
  }
  if (!plan.refusal) return kExitOk;
  call.console.err << plan.refusal->message << std::endl;
  return exit_code(plan.refusal->code);
}

}  // namespace plimsoll
