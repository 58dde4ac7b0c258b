#include "shared/model/model_source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/shown_text.h"
#include "shared/base/text.h"
#include "shared/model/derive_weights.h"
#include "shared/model/gguf.h"
#include "shared/model/gguf_spec.h"
#include "shared/model/gguf_split.h"
#include "shared/model/hf_config.h"
#include "shared/model/hf_folder.h"

namespace plimsoll {
namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{4} << 20;

// The type that most bytes have.
std::string main_type(const std::vector<WeightGroup>& groups) {
  std::map<std::string_view, Bytes> bytes;
  for (const WeightGroup& group : groups) bytes[group.type] += group.bytes_of_all();
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string() : std::string(most->first);
}

void note_unknown(ModelSpec& spec) {
  std::int64_t count = 0;
  Bytes bytes = 0;
  const WeightGroup* first = nullptr;
  for (const WeightGroup& group : spec.groups) {
    if (group.part != WeightPart::other) continue;
    if (first == nullptr) first = &group;
    count += group.count;
    bytes += group.bytes_of_all();
  }
  if (first == nullptr) return;
  spec.assumptions.push_back(
      fmt::format("{} weights that are not known to us ({}, {} in all) are whole on every rank",
                  count, to_valid_utf8(first->name), format_bytes(bytes)));
}

ModelSpec finished(HfConfig config, std::vector<WeightGroup> groups, WeightSource source,
                   const std::string& name) {
  ModelSpec spec = std::move(config.spec);
  spec.groups = std::move(groups);
  spec.weight_source = source;
  spec.file_type = main_type(spec.groups);
  if (!name.empty()) spec.name = name;
  note_unknown(spec);
  return spec;
}

// ModelOpt writes how it quantised into a file of its own, beside a config.json that knows nothing
// of it.
Status take_modelopt(const std::filesystem::path& path, Json& config) {
  std::error_code error;
  const std::filesystem::path beside = path.parent_path() / "hf_quant_config.json";
  if (config.find("quantization_config") != nullptr) return {};
  if (!std::filesystem::is_regular_file(beside, error)) return {};
  const std::string text = TRY(read_file(beside, kConfigBytesMax));
  const Json json = TRY_CONTEXT(beside.string() + ": ", parse_json(text));
  const Json* said = json.find("quantization");
  if (said == nullptr || !said->is_object()) return {};
  Json quantisation = *said;
  quantisation.set("quant_method", "modelopt");
  config.set("quantization_config", std::move(quantisation));
  return {};
}

Result<HfConfig> read_config(const std::filesystem::path& path) {
  const std::string text = TRY(read_file(path, kConfigBytesMax));
  Result<Json> json = parse_json(text);
  // Its errors are those of the text.
  if (!json || !json->is_object()) return parse_hf_config(std::string_view(text));
  TRY(take_modelopt(path, *json));
  return parse_hf_config(*json);
}

Result<ModelSpec> from_config(HfConfig config, const std::string& name) {
  std::vector<WeightGroup> groups = TRY(derive_weights(config));
  return finished(std::move(config), std::move(groups), WeightSource::config, name);
}

// "kimi-k2.5" of "/models/kimi-k2.5/".
std::string folder_name(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::weakly_canonical(folder, error);
  return shown_line((error ? folder : full).filename().string());
}

Result<ModelSpec> read_folder(const std::filesystem::path& folder) {
  HfConfig config = TRY(read_config(folder / "config.json"));
  const SafetensorsIndex index = TRY(find_safetensors(folder));
  const std::string name = folder_name(folder);
  if (index.files.empty()) return from_config(std::move(config), name);
  std::vector<WeightGroup> groups = TRY(read_folder_weights(folder, index, config));
  config.spec.assumptions.clear();
  return finished(std::move(config), std::move(groups), WeightSource::headers, name);
}

Result<ModelSpec> read_gguf(const std::filesystem::path& path) {
  const GgufFile file = TRY(GgufFile::open(path));
  const std::optional<GgufPart> part = TRY(gguf_part(file));
  const WeightIndex weights = part ? TRY(read_split_weights(path, file, *part)) : file.weights();
  ModelSpec spec = TRY(describe_gguf(file, weights));
  const Result<ModelSpec> loaded = read_model_spec(file);
  if (!loaded) spec.not_loaded = loaded.error().message;
  return spec;
}

}  // namespace

Result<ModelSpec> spec_of_config(const Json& json, const std::string& name) {
  HfConfig config = TRY(parse_hf_config(json));
  return from_config(std::move(config), name);
}

bool is_description(const std::filesystem::path& path) {
  std::error_code error;  // what cannot be looked at is no folder
  return path.extension() == ".json" || std::filesystem::is_directory(path, error);
}

Result<ModelSpec> read_model(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return read_folder(path);
  if (path.string().ends_with(".safetensors.index.json")) {
    return invalid(
        "it lists the tensors of a model in safetensors files and does not say what kind of model "
        "it is; give the folder with its config.json");
  }
  if (path.extension() == ".json") {
    HfConfig config = TRY(read_config(path));
    return from_config(std::move(config), folder_name(path.parent_path()));
  }
  if (path.extension() == ".safetensors") {
    return invalid(
        "a safetensors file alone does not say what kind of model it is; give the folder with its "
        "config.json");
  }
  return read_gguf(path);
}

}  // namespace plimsoll
