// StepPlan: everything that the ranks must know to compute one step; and its bytes in the ring.
//
// Rows are tokens; the rows of one sequence follow each other. Rank 0 makes it, all ranks run it.
// The bytes are little-endian 32-bit words: kind, four counts, then the arrays in order of
// declaration. Both sides are the same build, so the layout has no version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"

namespace plimsoll {

struct StepSequence {
  std::int32_t row = 0;  // of its first token in this step
  std::int32_t tokens = 0;
  std::int32_t position = 0;  // of its first token in this step
  std::int32_t blocks_begin = 0;
  std::int32_t blocks_count = 0;
  bool operator==(const StepSequence&) const = default;
};

struct StepPlan {
  std::vector<std::int32_t> ids;         // [rows]
  std::vector<StepSequence> sequences;   // in order of their rows
  std::vector<std::int32_t> blocks;      // block tables, one after the other
  std::vector<std::int32_t> logit_rows;  // rows whose logits are computed, ascending

  bool empty() const { return ids.empty(); }
  Tokens rows() const { return static_cast<Tokens>(ids.size()); }
  void clear();
  bool operator==(const StepPlan&) const = default;
};

// What a step may hold; buffers are made for this once.
struct StepLimits {
  Tokens rows_max = 0;
  std::int64_t sequences_max = 0;
  std::int64_t logit_rows_max = 0;
  Blocks kv_blocks = 0;
  Blocks table_blocks_max = 0;  // over all block tables; sequences share blocks, so not kv_blocks
};

// A plan whose arrays never grow past what is reserved here.
StepPlan make_step_plan(const StepLimits& limits);

enum class StepKind : std::uint32_t { run = 1, stop = 2 };

// The longest encoding, in bytes.
Bytes step_bytes_max(const StepLimits& limits);

// Replaces `bytes`. A stop says that no step follows; its plan is empty.
void encode_step(StepKind kind, const StepPlan& plan, std::vector<std::byte>& bytes);

// Errors: Code::internal where lengths, rows or blocks contradict each other or the limits.
Result<StepKind> decode_step(std::span<const std::byte> bytes, const StepLimits& limits,
                             StepPlan& plan);

// What decode_step checks, also for a plan that was just made.
Status check_step(const StepPlan& plan, const StepLimits& limits);

}  // namespace plimsoll
