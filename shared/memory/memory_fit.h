// MemoryFit: decides what options left to `auto`: context, requests, graphs and KV blocks.
//
// KV is sized by one of five rules. By demand it is what the requests need, never more; the others
// say how much. Order: an undecided context is lowered first, then (on GPUs) an undecided step,
// then undecided requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/memory/device_terms.h"
#include "shared/memory/memory_terms.h"
#include "shared/model/model_spec.h"
#include "shared/options/fraction.h"

namespace plimsoll {

constexpr std::int64_t kRunningRequestsDefault = 16;         // on CPUs
constexpr std::int64_t kRunningRequestsDefaultDevice = 256;  // on GPUs
constexpr Tokens kStepTokensDefault = 512;                   // on CPUs
constexpr Tokens kStepTokensFloorDevice = 2048;  // an undecided step is not lowered below this
constexpr Tokens kContextFloor = 4096;           // an undecided context is not lowered below this
constexpr std::int64_t kLogitRowsMin = 64;  // so that log-probabilities of prompts come in batches

enum class KvRule {
  demand,           // requests x context, or max-total-tokens, as far as memory allows
  static_fraction,  // SGLang: free before weights x fraction - weights
  utilization,      // vLLM: device total x fraction - all that a worker takes after its start
  bytes,
};

// A figure that takes the place of a formula.
struct Override {
  Term term = Term::weights;
  Bytes bytes = 0;
  Trust trust = Trust::assumed;
  std::string from;                              // "--assume"
  std::optional<std::int64_t> graph_batch = {};  // as of LearnedTerm
  bool holds(const StepShape& step) const {
    return !graph_batch || *graph_batch == step.cuda_graph_max_bs;
  }
};

// What smaller devices begin with, and by how much ours are larger than the largest of those.
struct SmallerDefaults {
  Tokens step_tokens = 0;
  std::int64_t graph_batch = 0;
  Bytes above = 0;
};

// The same in every replica.
struct FitInputs {
  const ModelSpec* model = nullptr;
  std::vector<RankShape> ranks;  // those that differ
  std::int64_t tp = 1;
  bool on_devices = false;
  // Workers of ours run it: their kernels cut feed-forwards in units of their own.
  bool is_ours = true;
  // A step names its KV blocks in a ring of ours: of rehearsals too.
  bool has_ring = true;
  DeviceSetting setting;
  std::vector<Override> overrides;

  KvRule rule = KvRule::demand;
  Millionths fraction = 0;        // of static_fraction and utilization
  Bytes kv_bytes = 0;             // of bytes, one rank
  Bytes free_before_weights = 0;  // the least of all ranks
  // Unset: auto.
  std::optional<Tokens> context_length;
  std::optional<Tokens> max_total_tokens;
  std::optional<std::int64_t> max_running_requests;
  std::optional<Tokens> chunked_prefill_size;
  std::optional<std::int64_t> cuda_graph_max_bs;
  // What auto begins with.
  std::int64_t requests_default = kRunningRequestsDefault;
  Tokens step_tokens_default = kStepTokensDefault;
  std::int64_t graph_batch_default = 0;
  std::optional<SmallerDefaults> smaller;
};

struct Fit {
  StepShape step;
  Blocks kv_blocks = 0;    // where it does not fit: what one request, or the rule, needs
  bool holds_one = false;  // the rule gives KV for one request of the context
  bool is_within = false;  // everything fits into each rank's budget
  bool fits = false;       // both
};

Fit decide_fit(const FitInputs& in);
// The same with every rank looked at, each time: what binding_ranks.h is held against.
Fit decide_fit_of_all(const FitInputs& in);

// The least that these options allow: what decide_fit() falls back to before it gives up.
Fit least_fit(const FitInputs& in);
// Bytes of a rank in that case.
Bytes rank_bytes(const FitInputs& in, const RankShape& rank, const Fit& fit);

StepShape step_shape(const FitInputs& in, Tokens context_length, std::int64_t requests);
// That was given, or the longest that the model and max-total-tokens allow.
Tokens context_wanted(const FitInputs& in);
// Below which an undecided context is not lowered.
Tokens context_floor(const FitInputs& in);
Blocks blocks_of_tokens(Tokens tokens);  // rounded up
// That the ring between several ranks can carry in one step; no bound where there is none.
Blocks step_blocks_max(const FitInputs& in, const StepShape& step);
// What a rule gives for KV on a rank: may be negative. REQUIRES: not KvRule::demand.
Bytes kv_bytes_by_rule(const FitInputs& in, const RankShape& rank, const StepShape& step);

}  // namespace plimsoll
