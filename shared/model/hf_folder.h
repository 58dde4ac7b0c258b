// HfFolder: the weights of a folder of Hugging Face files, from the headers of its safetensors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/hf_config.h"
#include "shared/model/weight_group.h"

namespace plimsoll {

// model.safetensors.index.json: which files there are, and how many tensors they hold together.
struct SafetensorsIndex {
  std::vector<std::string> files;  // in order, each once; names, no paths
  std::size_t tensors = 0;
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view text);

// The safetensors files of a folder: those of its index; else model*.safetensors; else none.
// Errors: a file of the index that is not there.
Result<SafetensorsIndex> find_safetensors(const std::filesystem::path& folder);

// Errors: headers that are damaged or contradict the config; a weight of the config that no header
// has; fewer tensors than the index lists.
Result<std::vector<WeightGroup>> read_folder_weights(const std::filesystem::path& folder,
                                                     const SafetensorsIndex& index,
                                                     const HfConfig& config);

// Whether the groups have every matrix and norm that the config implies.
Status check_complete(const HfConfig& config, const std::vector<WeightGroup>& groups);

}  // namespace plimsoll
