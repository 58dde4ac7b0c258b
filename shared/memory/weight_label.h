// WeightLabel: what packed weights are of: the model file, the part of it that a rank has, and the
// layout. Packed weights with the same label are the same bytes.
#pragma once

#include <string>

#include "shared/base/result.h"
#include "shared/memory/memory_plan.h"

namespace plimsoll {

// "cpu-2 2049:1234 98765432 1764480000.123456789 ... heads 0-5 ...". The file is told by device,
// inode, size and times of its last changes: who writes to it changes them. Errors: not_found.
Result<std::string> weight_label(const std::string& model_path, const RankPlan& plan);

}  // namespace plimsoll
