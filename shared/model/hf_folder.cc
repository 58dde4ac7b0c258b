#include "shared/model/hf_folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/model/derive_weights.h"
#include "shared/model/safetensors.h"
#include "shared/model/weight_groups.h"

namespace plimsoll {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::size_t kIndexBytesMax = std::size_t{256} << 20;
constexpr std::size_t kFilesMax = 4096;
constexpr JsonLimits kIndexLimits{.depth_max = 8, .values_max = 4'000'000};

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos && name != "." && name != ".." &&
         name.find('\0') == std::string_view::npos;
}

// Suffixes of which every matrix or norm has exactly one.
bool is_main(std::string_view suffix) {
  return suffix == "weight" || suffix == "weight_packed" || suffix == "qweight";
}

// How many matrices and norms of each kind there are: by name without suffix, numbers as "*".
using Counts = std::map<std::string, std::int64_t, std::less<>>;

Counts module_counts(const std::vector<WeightGroup>& groups) {
  Counts counts;
  for (const WeightGroup& group : groups) {
    const bool is_text = group.part != WeightPart::vision && group.part != WeightPart::projector &&
                         group.part != WeightPart::mtp && group.part != WeightPart::other;
    const std::size_t dot = group.name.rfind('.');
    if (!is_text || dot == std::string::npos) continue;
    if (!is_main(std::string_view(group.name).substr(dot + 1))) continue;
    // Wrappers differ in what stands before the layers.
    std::string module = group.name.substr(0, dot);
    const std::size_t layers = module.find("layers.*.");
    if (layers != std::string::npos) module.erase(0, layers);
    const std::size_t leaf = module.rfind('.');
    if (layers == std::string::npos && leaf != std::string::npos) module.erase(0, leaf + 1);
    counts[module] += group.count;
  }
  return counts;
}

Result<std::vector<std::string>> listed_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    if (names.size() == kFilesMax) {
      return invalid(fmt::format("the folder {} has more than {} safetensors files",
                                 folder.native(), kFilesMax));
    }
    names.push_back(name);
  }
  if (error) {
    return invalid(fmt::format("read the folder {}: {}", folder.native(), error.message()));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
  const Json json = TRY(parse_json(text, kIndexLimits));
  const Json* map = json.find("weight_map");
  if (map == nullptr || !map->is_object()) {
    return invalid("it has no object \"weight_map\" from tensor names to file names");
  }
  std::set<std::string, std::less<>> files;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string() || !is_plain_name(file.as_string())) {
      return invalid(fmt::format(
          "the tensor \"{}\" is in {}; expected the name of a file beside it",
          to_valid_utf8(tensor.substr(0, 120)), to_valid_utf8(dump_json(file).substr(0, 120))));
    }
    files.insert(file.as_string());
    if (files.size() > kFilesMax) return invalid(fmt::format("more than {} files", kFilesMax));
  }
  return SafetensorsIndex{{files.begin(), files.end()}, map->as_object().size()};
}

Result<SafetensorsIndex> find_safetensors(const std::filesystem::path& folder) {
  const std::filesystem::path index = folder / kIndexName;
  std::error_code error;
  if (!std::filesystem::exists(index, error)) {
    return SafetensorsIndex{TRY(listed_files(folder)), 0};
  }
  const std::string text = TRY(read_file(index, kIndexBytesMax));
  SafetensorsIndex found =
      TRY_CONTEXT(fmt::format("read {}: ", index.native()), parse_safetensors_index(text));
  for (const std::string& name : found.files) {
    if (std::filesystem::exists(folder / name, error)) continue;
    return not_found(fmt::format(
        "{} lists the file {}, which is not in the folder; was the download interrupted?",
        index.native(), to_valid_utf8(name)));
  }
  return found;
}

Result<std::vector<WeightGroup>> read_folder_weights(const std::filesystem::path& folder,
                                                     const SafetensorsIndex& index,
                                                     const HfConfig& config) {
  WeightGroups groups(config.spec);
  std::size_t tensors = 0;
  for (const std::string& name : index.files) {
    const SafetensorsHeader header = TRY(read_safetensors(folder / name));
    tensors += header.tensors.size();
    for (const Tensor& tensor : header.tensors) {
      TRY_CONTEXT(fmt::format("{}: ", (folder / name).native()), groups.add_hf(tensor));
    }
  }
  if (index.tensors != 0 && tensors != index.tensors) {
    return invalid(fmt::format("{} lists {} tensors; the files that it names hold {}",
                               (folder / kIndexName).native(), index.tensors, tensors));
  }
  std::vector<WeightGroup> found = groups.take();
  TRY(check_complete(config, found));
  return found;
}

Status check_complete(const HfConfig& config, const std::vector<WeightGroup>& groups) {
  // What is quantised, and how, is the headers' to say; the vision tower's weights may be unknown.
  const HfConfig plain{.spec = config.spec,
                       .features = config.features,
                       .has_experts = config.has_experts,
                       .quantisation = {},
                       .prefix = config.prefix,
                       .plain_type = config.plain_type,
                       .vision = std::nullopt};
  const std::vector<WeightGroup> implied_groups = TRY(derive_weights(plain));
  const Counts found = module_counts(groups);
  for (const auto& [module, count] : module_counts(implied_groups)) {
    const auto held = found.find(module);
    const std::int64_t held_count = held == found.end() ? 0 : held->second;
    if (held_count == count) continue;
    return invalid(fmt::format(
        "the headers hold {} weights {}; config.json implies {}: is a file missing, or is it "
        "another model's?",
        held_count, module, count));
  }
  return {};
}

}  // namespace plimsoll
