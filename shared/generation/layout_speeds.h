// LayoutSpeeds: how fast earlier launches of a model were on this machine, by layout, for
// `--tp auto --dp auto`.
#pragma once

#include <filesystem>
#include <vector>

#include "shared/generation/generation_record.h"
#include "shared/generation/learned_terms.h"
#include "shared/memory/layout_choice.h"

namespace plimsoll {

// Of launches that differ in nothing but layout and what speed does not depend on. Pure.
std::vector<LayoutSpeed> layout_speeds(const Generations& all, const LearnQuestion& question);

// Of the records under that folder; what cannot be read says nothing.
std::vector<LayoutSpeed> read_layout_speeds(const std::filesystem::path& state,
                                            const LearnQuestion& question);

}  // namespace plimsoll
