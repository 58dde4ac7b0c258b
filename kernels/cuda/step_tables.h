// StepTables: what attention must know of a step's sequences, in the form that kernels read: of
// each token its position and block table, and tiles. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"
#include "shared/base/result.h"

namespace plimsoll::cuda {

// How much of each a step may have.
struct StepTableLimits {
  std::int64_t tokens = 0;
  std::int64_t table_entries = 0;  // of all block tables together
};
StepTableLimits step_table_limits(const BackendLimits& limits);

// Four arrays in one piece of memory; offsets are the same in the host's and the device's.
struct StepTables {
  std::int32_t* positions = nullptr;    // [tokens]
  std::int32_t* table_begin = nullptr;  // [tokens]: of the token's sequence, in tables
  AttentionTile* tiles = nullptr;       // at most one a token
  std::int32_t* tables = nullptr;
  static StepTables in(std::byte* memory, const StepTableLimits& limits);
};
Bytes step_table_bytes(const StepTableLimits& limits);

struct StepCounts {
  std::int64_t tiles = 0;
  std::int64_t table_entries = 0;
  std::int64_t splits_max = 0;  // of the longest sequence
};

// Tiles of up to kTileRows rows: so many tokens as have room with `heads_per_kv_head` heads each,
// at least one. Errors (internal): more tokens or table entries than the limits.
Result<StepCounts> fill_step_tables(std::span<const SequenceRows> sequences,
                                    std::int64_t heads_per_kv_head, const StepTableLimits& limits,
                                    const StepTables& to);

}  // namespace plimsoll::cuda
