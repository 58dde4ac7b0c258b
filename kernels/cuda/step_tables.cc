#include "kernels/cuda/step_tables.h"

#include <algorithm>
#include <string>

namespace plimsoll::cuda {
namespace {

constexpr std::int64_t kTableEntriesMax = 1 << 20;  // 32 Mi tokens of context in one step
constexpr std::int64_t kSplitTokens = std::int64_t{kSplitPages} * kPageTokens;
static_assert(kPageTokens == kKvBlockTokens);

}  // namespace

StepTableLimits step_table_limits(const BackendLimits& limits) {
  return {.tokens = limits.tokens_max,
          .table_entries = std::min(
              limits.tokens_max * ceil_div(limits.context_max, kKvBlockTokens), kTableEntriesMax)};
}

StepTables StepTables::in(std::byte* memory, const StepTableLimits& limits) {
  StepTables tables;
  tables.tiles = reinterpret_cast<AttentionTile*>(memory);
  tables.positions = reinterpret_cast<std::int32_t*>(tables.tiles + limits.tokens);
  tables.table_begin = tables.positions + limits.tokens;
  tables.tables = tables.table_begin + limits.tokens;
  return tables;
}

Bytes step_table_bytes(const StepTableLimits& limits) {
  constexpr auto kWord = static_cast<Bytes>(sizeof(std::int32_t));
  return limits.tokens * (static_cast<Bytes>(sizeof(AttentionTile)) + 2 * kWord) +
         limits.table_entries * kWord;
}

Result<StepCounts> fill_step_tables(std::span<const SequenceRows> sequences,
                                    std::int64_t heads_per_kv_head, const StepTableLimits& limits,
                                    const StepTables& to) {
  const std::int64_t tile_tokens = std::max<std::int64_t>(1, kTileRows / heads_per_kv_head);
  StepCounts counts;
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  for (const SequenceRows& sequence : sequences) {
    const std::int64_t end = sequence.position + sequence.tokens;
    const std::int64_t entries = ceil_div(end, kKvBlockTokens);
    if (sequence.row + sequence.tokens > limits.tokens ||
        counts.table_entries + entries > limits.table_entries) {
      return internal_error(
          "a step of " + std::to_string(sequence.row + sequence.tokens) + " tokens and " +
          std::to_string(counts.table_entries + entries) + " KV blocks; the GPU's tables are for " +
          std::to_string(limits.tokens) + " and " + std::to_string(limits.table_entries));
    }
    for (std::int64_t t = 0; t < sequence.tokens; ++t) {
      to.positions[sequence.row + t] = narrow(sequence.position + t);
      to.table_begin[sequence.row + t] = narrow(counts.table_entries);
    }
    for (std::int64_t t = 0; t < sequence.tokens; t += tile_tokens) {
      to.tiles[counts.tiles++] = {.row = narrow(sequence.row + t),
                                  .tokens = narrow(std::min(tile_tokens, sequence.tokens - t)),
                                  .position = narrow(sequence.position + t),
                                  .table = narrow(counts.table_entries)};
    }
    std::copy_n(sequence.blocks.begin(), entries, to.tables + counts.table_entries);
    counts.table_entries += entries;
    counts.splits_max = std::max(counts.splits_max, ceil_div(end, kSplitTokens));
  }
  return counts;
}

}  // namespace plimsoll::cuda
