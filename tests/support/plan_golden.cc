#include "tests/support/plan_golden.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/machine/machine_file.h"
#include "shared/memory/machine_source.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/sglang_fraction.h"
#include "shared/model/model_source.h"
#include "shared/model/shard_plan.h"
#include "shared/model/weight_share.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = 4 * 1024 * 1024;

std::int64_t count(const Json& shape, std::string_view key, std::int64_t otherwise = 0) {
  const Json* found = shape.find(key);
  return found != nullptr && found->is_integer() ? found->as_int() : otherwise;
}

Result<Json> read_json(const std::filesystem::path& path) {
  const std::string text = TRY(read_file(path, kFileBytesMax));
  return TRY_CONTEXT(path.string() + ": ", parse_json(text));
}

// A GGUF file's, which CPU ranks can run.
ModelSpec gguf_model(const Json& shape) {
  return make_llama_spec({.layers = count(shape, "layers"),
                          .hidden = count(shape, "hidden"),
                          .ffn = count(shape, "ffn"),
                          .heads = count(shape, "heads"),
                          .kv_heads = count(shape, "kv_heads", 1),
                          .head_dim = count(shape, "head_dim"),
                          .vocab = count(shape, "vocab"),
                          .context_length = count(shape, "context_length")});
}

// A name under plans/models; {"config": NAME} of a config.json under models; or a shape.
Result<ModelSpec> model_of(const Json& json) {
  if (json.is_string()) return golden_model(json.as_string());
  if (const Json* config = json.find("config")) {
    const Json file = TRY(read_json(golden_path("models/" + config->as_string() + ".json")));
    return spec_of_config(*file.find("config"), config->as_string());
  }
  if (const Json* shape = json.find("gguf")) return gguf_model(*shape);
  return model_from_shape(json);
}

Result<Machine> machine_of(const Json& json, const Options& options) {
  if (!json.is_string()) return parse_machine(dump_json(json));
  if (json.as_string() == "options") return find_machine(options);
  return read_machine_file(golden_path("").parent_path() / "../../configs/machines" /
                           (json.as_string() + ".json"));
}

void differ(const std::string& where, const std::string& expected, const std::string& found,
            std::vector<std::string>& differences) {
  differences.push_back(fmt::format("{}: expected {}, found {}", where, expected, found));
}

bool is_range(const Json& expected) {
  return expected.find("at_least") != nullptr || expected.find("at_most") != nullptr;
}

void compare(const std::string& where, const Json& expected, const Json* found,
             std::vector<std::string>& differences) {
  if (found == nullptr) {
    if (!expected.is_null()) differ(where, dump_json(expected), "nothing", differences);
    return;
  }
  if (is_range(expected)) {
    const Json* low = expected.find("at_least");
    const Json* high = expected.find("at_most");
    if (!found->is_number() || (low != nullptr && found->as_double() < low->as_double()) ||
        (high != nullptr && found->as_double() > high->as_double())) {
      differ(where, dump_json(expected), dump_json(*found), differences);
    }
  } else if (expected.is_object()) {
    for (const auto& [key, value] : expected.as_object()) {
      compare(where + "." + key, value, found->find(key), differences);
    }
  } else if (expected.is_array()) {  // of texts: each is somewhere in the text
    for (const Json& part : expected.as_array()) compare(where, part, found, differences);
  } else if (expected.is_string()) {
    if (!found->is_string() || found->as_string().find(expected.as_string()) == std::string::npos) {
      differ(where, dump_json(expected), dump_json(*found, 2), differences);
    }
  } else if (expected.is_number() && found->is_number()) {
    if (std::abs(expected.as_double() - found->as_double()) > 1e-9) {
      differ(where, dump_json(expected), dump_json(*found), differences);
    }
  } else if (!(expected == *found)) {
    differ(where, dump_json(expected), dump_json(*found), differences);
  }
}

// The plan's JSON, with its window, the rows of rank 0 by term, and the message by itself.
Json outcome(const MemoryPlan& plan, const MemoryWindow& window) {
  Json json = memory_plan_to_json(plan);
  json.set("window", memory_window_to_json(window));
  Json rows = Json::object();
  for (const PlanRow& row : plan.ranks.front().rows) rows.set(term_name(row.term), row.bytes);
  json.set("rows", std::move(rows));
  std::string notes;
  for (const std::string& note : plan.decisions.notes) notes += note + "\n";
  json.set("notes", std::move(notes));
  json.set("message", plan.refusal ? plan.refusal->message : "");
  return json;
}

bool flag(const Json& inputs, std::string_view key) {
  const Json* found = inputs.find(key);
  return found != nullptr && *found == Json(true);
}

Result<Json> weights_of_rank(const Json& inputs) {
  const ModelSpec model = TRY(model_of(inputs));
  const ShardPlan shards = TRY(plan_shards(model, count(inputs, "tp", 1)));
  const RankShare share = rank_share(model, shards, static_cast<std::size_t>(count(inputs, "rank")),
                                     {.vision_sharded = flag(inputs, "vision_sharded"),
                                      .absorbed_copies = !flag(inputs, "without_absorbed")});
  const Bytes vision = share.part(WeightPart::vision) + share.part(WeightPart::projector);
  return Json::object({{"bytes", share.total()},
                       {"bytes_without_vision", share.total() - vision},
                       {"absorbed", share.absorbed},
                       {"checkpoint", model.weight_bytes()}});
}

// One function of the plan by itself, where a case is about no more than it.
Result<Json> run_formula(std::string_view name, const Json& inputs) {
  if (name == "rank-weights") return weights_of_rank(inputs);
  if (name == "sglang-request-table") {
    return Json::object({{"bytes", sglang_request_table_bytes(count(inputs, "requests"),
                                                              count(inputs, "context_length"))}});
  }
  if (name == "sglang-auto-fraction") {
    const Millionths fraction =
        sglang_auto_fraction({.device_mib = count(inputs, "device_mib"),
                              .tp = count(inputs, "tp", 1),
                              .dp_attention = count(inputs, "dp_attention"),
                              .is_latent = flag(inputs, "latent"),
                              .chunked_prefill = count(inputs, "chunked_prefill"),
                              .graph_batch = inputs.find("graph_batch") == nullptr
                                                 ? std::nullopt
                                                 : std::optional(count(inputs, "graph_batch")),
                              .requests = count(inputs, "requests"),
                              .has_vision = flag(inputs, "vision"),
                              .vision_layers = count(inputs, "vision_layers", 24),
                              .vision_hidden = count(inputs, "vision_hidden", 1024),
                              .has_deepep = flag(inputs, "deepep")});
    return Json::object({{"fraction", static_cast<double>(fraction) / kWhole}});
  }
  return invalid(fmt::format("no formula is called '{}'", name));
}

Result<Json> run(const Json& one) {
  if (const Json* formula = one.find("formula")) {
    const Json* inputs = one.find("inputs");
    return run_formula(formula->as_string(), inputs != nullptr ? *inputs : Json::object());
  }
  std::vector<std::string> flags;
  if (const Json* given = one.find("flags")) {
    for (const Json& flag : given->as_array()) flags.push_back(flag.as_string());
  }
  const OptionSet options =
      TRY(parse_options({.flags = flags, .environment = {}, .file = "/dev/null"}));
  const Json* machine_json = one.find("machine");
  const Json* model_json = one.find("model");
  if (machine_json == nullptr || model_json == nullptr) {
    return invalid("a case needs a machine and a model");
  }
  const Machine machine = TRY(machine_of(*machine_json, options.values));
  const ModelSpec model = TRY(model_of(*model_json));
  std::optional<ModelSpec> draft;
  if (const Json* draft_json = one.find("draft")) draft = TRY(model_of(*draft_json));
  const ModelSpec* draft_model = draft ? &*draft : nullptr;
  const MemoryPlan plan = TRY(plan_memory(machine, model, options, draft_model));
  const MemoryWindow window = TRY(plan_window(machine, model, options, draft_model));
  return outcome(plan, window);
}

}  // namespace

Result<ModelSpec> model_from_shape(const Json& shape) {
  if (!shape.is_object()) return invalid("a model's shape must be an object");
  ModelSpec model;
  model.architecture = "test";
  model.layers = count(shape, "layers");
  model.hidden = count(shape, "hidden");
  model.ffn = count(shape, "ffn");
  model.heads = count(shape, "heads");
  model.kv_heads = count(shape, "kv_heads", 1);
  model.head_dim = count(shape, "head_dim");
  model.vocab = count(shape, "vocab");
  model.context_length = count(shape, "context_length");
  model.rope_dim = count(shape, "rope_dim", model.head_dim);
  if (const Json* latent = shape.find("latent")) {
    model.latent = {.q_rank = count(*latent, "q_rank"),
                    .kv_rank = count(*latent, "kv_rank"),
                    .nope_dim = count(*latent, "nope_dim"),
                    .rope_dim = count(*latent, "rope_dim"),
                    .value_dim = count(*latent, "value_dim")};
    model.head_dim = model.latent->nope_dim + model.latent->rope_dim;
    model.rope_dim = model.latent->rope_dim;
  }
  if (const Json* experts = shape.find("experts")) {
    model.experts = {.layers = count(*experts, "layers"),
                     .count = count(*experts, "count"),
                     .used = count(*experts, "used"),
                     .ffn = count(*experts, "ffn"),
                     .shared_ffn = count(*experts, "shared_ffn")};
  }
  return model;
}

Result<ModelSpec> golden_model(const std::string& name) {
  return model_from_shape(TRY(read_json(golden_path("plans/models/" + name + ".json"))));
}

std::vector<std::filesystem::path> plan_case_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("plans"))) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> run_plan_case(const std::filesystem::path& file) {
  const Result<Json> one = read_json(file);
  if (!one) return {one.error().message};
  const Json* expected = one->find("expect");
  if (expected == nullptr) return {"the case expects nothing"};
  const Result<Json> found = run(*one);
  std::vector<std::string> differences;
  if (const Json* error = expected->find("error")) {
    const Json message(found ? std::string("a plan") : found.error().message);
    compare("error", *error, &message, differences);
    return differences;
  }
  if (!found) return {found.error().message};
  compare("plan", *expected, &*found, differences);
  return differences;
}

}  // namespace plimsoll
