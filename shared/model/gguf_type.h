// GgufType: GGUF's types that no kernel of ours runs: their names and block sizes, so that a file
// of them can be planned for.
#pragma once

#include <cstdint>
#include <span>

#include "shared/model/dtype.h"

namespace plimsoll {

// nullptr: a type that we run (dtype.h), or none of GGUF's.
const DTypeInfo* find_planned_type(std::uint32_t id);
std::span<const DTypeInfo> all_planned_types();

}  // namespace plimsoll
