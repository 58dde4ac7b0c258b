// MemoryFit: decides what options left to `auto`: context, requests and KV blocks within a budget.
//
// Order: an undecided context is lowered first, then undecided requests; KV is what that many
// requests of that length need, never more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shared/base/units.h"
#include "shared/memory/memory_terms.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

constexpr std::int64_t kRunningRequestsDefault = 16;
constexpr Tokens kStepTokensDefault = 512;
constexpr Tokens kContextFloor = 4096;      // an undecided context is not lowered below this
constexpr std::int64_t kLogitRowsMin = 64;  // so that log-probabilities of prompts come in batches

// The same in every replica.
struct FitInputs {
  const ModelSpec* model = nullptr;
  std::vector<RankShape> ranks;  // of one replica
  Bytes budget = 0;              // of one rank
  // Unset: auto.
  std::optional<Tokens> context_length;
  std::optional<Tokens> max_total_tokens;
  std::optional<std::int64_t> max_running_requests;
  std::optional<Tokens> chunked_prefill_size;

  std::int64_t tp() const { return static_cast<std::int64_t>(ranks.size()); }
};

struct Fit {
  StepShape step;
  Blocks kv_blocks = 0;  // where it does not fit: what one request, or max_total_tokens, needs
  bool fits = false;
};

Fit decide_fit(const FitInputs& in);

// The least that these options allow: what decide_fit() falls back to before it gives up.
Fit least_fit(const FitInputs& in);
// Bytes of a rank in that case.
Bytes rank_bytes(const FitInputs& in, const RankShape& rank, const Fit& fit);

StepShape step_shape(const FitInputs& in, Tokens context_length, std::int64_t requests);
Blocks blocks_of_tokens(Tokens tokens);  // rounded up
// That the ring between several ranks can carry in one step; no bound for one rank.
Blocks step_blocks_max(const FitInputs& in, const StepShape& step);

}  // namespace plimsoll
