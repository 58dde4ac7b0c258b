// MemoryTerms: the formula of each row of a CPU rank's plan but KV: bytes, and the arithmetic in
// words. device_terms.h has those of ranks on GPUs.
//
// Buffers are carved from one arena at 64-byte boundaries, so each is rounded up to that.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/units.h"
#include "shared/machine/machine.h"
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
  std::int64_t cuda_graph_max_bs = 0;
};

// One rank; or several that differ in nothing that the plan counts.
struct RankShape {
  RankShard shard;
  Bytes weights = 0;  // of the text model; CPU: rank_weights(...).bytes(), over the sharers
  std::int64_t weight_sharers = 1;  // as of RankPlan
  Bytes shared_weights = 0;
  std::int64_t threads = 1;
  bool leader = true;        // rank 0: it gathers logits and samples
  std::int64_t index = 0;    // of the first such rank, of all replicas'
  Bytes budget = 0;          // that all rows together may take
  bool on_cuda = false;      // its worker runs our kernels for GPUs, on one or on the CPU
  Bytes kv_token_bytes = 0;  // of the model and its draft
  Trust kv_trust = Trust::computed;

  // Of a rank on a device:
  const Device* device = nullptr;
  Bytes free_at_start = 0;  // with context and communicators up
  Bytes replicated = 0;     // part of `weights` that other ranks hold too
  Bytes absorbed = 0;
  Bytes vision = 0;
  Bytes draft = 0;
  Bytes draft_of_all = 0;  // the draft model's weights, of however many ranks
  std::int64_t draft_ranks = 0;
};

// Bytes of each term.
struct TermBytes {
  std::array<Bytes, kTermCount> of{};
  Bytes& operator[](Term term) { return of[static_cast<std::size_t>(term)]; }
  Bytes operator[](Term term) const { return of[static_cast<std::size_t>(term)]; }
  Bytes sum() const {
    Bytes all = 0;
    for (const Bytes bytes : of) all += bytes;
    return all;
  }
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
// [step_tokens, ...] f32: residual stream (three times where ranks reduce partial sums, in f64),
// q·k·v, attention's output, feed-forward.
Bytes activations_bytes(const TermInputs& in);
// The CPU backend's scratch; at least Backend::workspace_bytes() (a test of the worker compares).
Bytes workspace_bytes(const TermInputs& in);
// [logit_rows, hidden] f32 of the rows whose logits are computed, [logit_rows, own vocabulary
// rows], and on a leader of several ranks [logit_rows, vocab].
Bytes logits_bytes(const TermInputs& in);
// This rank's share of the segment that its replica's ranks share; nothing at tp = 1.
Bytes collective_bytes(const TermInputs& in);
// Heap, stacks, queues and a share of the program (assumed); of a leader the sampler's arrays, of
// others their copy of the step ring.
Bytes process_bytes(const TermInputs& in);

// All rows but KV: bytes by term, and the arithmetic of one in words.
TermBytes cpu_term_bytes(const TermInputs& in);
std::string cpu_term_formula(const TermInputs& in, Term term);

Bytes kv_block_bytes(const ModelSpec& model, const RankShard& shard);
// The KV block that batches are filled up with, and what is lost at the end of KV, where memory is
// mapped in whole granules.
Bytes null_block_bytes(const TermInputs& in, Bytes granule);

std::string grouped(std::int64_t value);  // "1,024"
// "1 request", "1,024 requests".
std::string counted(std::int64_t value, std::string_view noun);

}  // namespace plimsoll
