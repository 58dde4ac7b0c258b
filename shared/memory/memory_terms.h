// MemoryTerms: the formula of each row of the plan but KV: bytes, and the arithmetic in words.
//
// Buffers are carved from one arena at 64-byte boundaries, so each is rounded up to that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/memory/memory_plan.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"

namespace plimsoll {

constexpr Bytes kBufferAlignment = 64;

// What a step may hold; all ranks make their buffers for it once.
struct StepShape {
  Tokens context_length = 0;
  std::int64_t max_running_requests = 0;
  Tokens step_tokens_max = 0;
  std::int64_t logit_rows_max = 0;
};

struct RankShape {
  RankShard shard;
  Bytes weights = 0;  // rank_weights(...).bytes()
  std::int64_t threads = 1;
  bool leader = true;  // rank 0: it gathers logits and samples
};

struct TermInputs {
  const ModelSpec& model;
  const RankShape& rank;
  const StepShape& step;
  std::int64_t tp = 1;
};

// Rope's cos and sin [context, rope_dim / 2] f32 each, then block tables
// [requests, blocks of a context] i32.
Bytes tables_bytes(const TermInputs& in);
// [step_tokens, ...] f32: residual stream (twice where ranks reduce partial sums), q·k·v,
// attention's output, feed-forward.
Bytes activations_bytes(const TermInputs& in);
// The CPU backend's scratch; at least Backend::workspace_bytes() (a test of the worker compares).
Bytes workspace_bytes(const TermInputs& in);
// [logit_rows, hidden] f32 of the rows whose logits are computed, [logit_rows, own vocabulary
// rows], and on a leader of several ranks [logit_rows, vocab].
Bytes logits_bytes(const TermInputs& in);
// This rank's share of the segment that its replica's ranks share; nothing at tp = 1.
Bytes collective_bytes(const TermInputs& in);
// Program, stacks, message queues and vocabulary (assumed), and the sampler's arrays of a leader.
Bytes process_bytes(const TermInputs& in);

// All rows but KV: their sum, and the rows themselves.
Bytes fixed_bytes(const TermInputs& in);
std::vector<PlanRow> fixed_rows(const TermInputs& in);

Bytes kv_block_bytes(const ModelSpec& model, const RankShard& shard);
PlanRow kv_row(const ModelSpec& model, const RankShard& shard, Blocks blocks);

std::string grouped(std::int64_t value);  // "1,024"

}  // namespace plimsoll
