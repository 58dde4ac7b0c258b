// HfConfig: a Hugging Face config.json as our parameters: the sizes of a ModelSpec, and what its
// weights follow from.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/model/family.h"
#include "shared/model/model_spec.h"
#include "shared/model/quantisation.h"
#include "shared/model/vision.h"

namespace plimsoll {

struct HfConfig {
  ModelSpec spec;  // without groups
  Features features = 0;
  std::vector<bool> has_experts;  // layer by layer
  Quantisation quantisation;
  std::string prefix;      // of the text model's weights: "model.", "language_model.model."
  std::string plain_type;  // of what is not quantised: "BF16"
  std::optional<VisionConfig> vision;
  bool has_unknown_vision = false;  // a tower whose weights only headers can tell
};

// Errors: a model_type that we do not know (names those that we do), members that are missing, of
// a wrong type or out of range.
Result<HfConfig> parse_hf_config(const Json& json);
Result<HfConfig> parse_hf_config(std::string_view text);

}  // namespace plimsoll
