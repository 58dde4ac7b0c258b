// PlanGolden: cases of the memory plan as data: machine, model and flags, and what must come out.
//
// {"case": "T-04", "about": "...", "machine": "8x-h200" or an object as in configs/machines,
//  "model": "kimi-k2.5" (models/kimi-k2.5.json), "draft": optional, "flags": ["--tp=8"],
//  "expect": a part of the plan's JSON}. In `expect` an object must have at least these members, a
// text must contain it, and {"at_least": 1, "at_most": 2} is a range. "rows" are the bytes by term
// of rank 0; "message" are the refusal's parts. A case of one formula has "formula" and "inputs" in
// place of machine, model and flags.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

std::vector<std::filesystem::path> plan_case_files();
// One line a difference; empty: as expected.
std::vector<std::string> run_plan_case(const std::filesystem::path& file);

// A model's shape from JSON, without weights ({"layers": 61, "latent": {...}, ...}).
Result<ModelSpec> model_from_shape(const Json& shape);
Result<ModelSpec> golden_model(const std::string& name);

}  // namespace plimsoll
