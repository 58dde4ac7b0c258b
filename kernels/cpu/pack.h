// Pack: shuffles stored weight rows into the layout of kernels/cpu/packed_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace plimsoll {

// Packs the rows of groups [group_begin, group_end) of the slice (group g is slice rows [16 g, 16 g
// + 16)). Groups are independent, so that threads can share the work. Rows beyond the slice stay
// as they are: `destination` comes zeroed.
// REQUIRES: check_pack(slice, destination) passed.
void pack_groups(const StoredSlice& slice, std::int64_t group_begin, std::int64_t group_end,
                 std::byte* destination);

}  // namespace plimsoll
