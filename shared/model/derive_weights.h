// DeriveWeights: the weights that a config.json implies, without any file that holds them.
#pragma once

#include <vector>

#include "shared/base/result.h"
#include "shared/model/hf_config.h"
#include "shared/model/weight_group.h"

namespace plimsoll {

// Errors: a quantisation or a vision tower whose weights only headers can tell; sizes whose product
// no machine could hold.
Result<std::vector<WeightGroup>> derive_weights(const HfConfig& config);

}  // namespace plimsoll
