// Vision: towers of models that see: their sizes from vision_config, their weights, how they are
// cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/model/config_object.h"
#include "shared/model/model_spec.h"
#include "shared/model/weight_group.h"

namespace plimsoll {

// What a tower's weights follow from, beside VisionTower.
struct VisionConfig {
  VisionTower tower;
  std::int64_t patch = 0;      // pixels a side
  std::int64_t positions = 0;  // learnt position embeddings
  std::int64_t merged = 1;     // patches that the projector joins
  std::int64_t text_hidden = 0;
};

// `wrapper` is config.json's model_type; nullopt: its tower is not known to us.
Result<std::optional<VisionConfig>> read_vision(std::string_view wrapper,
                                                const ConfigObject& vision,
                                                std::int64_t text_hidden);

struct CountedTensor {
  std::string name;  // "vision_tower.encoder.blocks.0.wqkv.weight"
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
};
std::vector<CountedTensor> vision_tensors(const VisionConfig& config);

// Of a tower's weight: linears by heads or feed-forward, everything else whole.
Cut vision_cut(const VisionTower& tower, std::string_view name,
               const std::vector<std::int64_t>& shape);

}  // namespace plimsoll
