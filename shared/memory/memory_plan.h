// MemoryPlan: who may use how much, decided before a byte of weights is loaded.
//
// A pure function of machine, model and options: no I/O, deterministic. One ledger a rank; every
// row says what it is, how it was computed and how far to trust it. See MEMORY.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "shared/options/option_set.h"

namespace plimsoll {

enum class Term { weights, tables, activations, workspace, logits, collective, process, kv };
const char* term_name(Term term);  // "weights"

enum class Trust { computed, measured, assumed, margin };
const char* trust_name(Trust trust);

struct PlanRow {
  Term term = Term::weights;
  Bytes bytes = 0;
  std::string formula;  // with its numbers: "1,024 tokens x 576 x 4 B x 3"
  Trust trust = Trust::computed;
};

struct RankPlan {
  std::int64_t replica = 0;
  std::int64_t rank = 0;  // within the replica
  RankShard shard;
  std::vector<int> cpus;  // that its threads are bound to; empty: not bound
  std::int64_t threads = 1;
  int numa_node = 0;
  Bytes budget = 0;           // of this rank
  std::vector<PlanRow> rows;  // KV last; the sum is at most the budget in a plan that fits
  Bytes bytes(Term term) const;
  Bytes total() const;
};

// What the options left to `auto`, decided.
struct PlanDecisions {
  Tokens context_length = 0;
  std::int64_t max_running_requests = 0;
  Tokens step_tokens_max = 0;  // rows of one step (chunked prefill's upper bound)
  std::int64_t logit_rows_max = 0;
  Blocks kv_blocks = 0;            // of each rank of each replica
  std::vector<std::string> notes;  // one line for each thing that was lowered, and why
};

// Unset: no value of this option alone makes it fit.
struct MemoryWindow {
  std::optional<Bytes> device_memory_min;                // exact; at most what is available
  std::optional<Tokens> context_length_max;              // up to the model's own
  std::optional<std::int64_t> max_running_requests_max;  // where it was given
  std::optional<Tokens> chunked_prefill_size_max;
  std::optional<Tokens> max_total_tokens_max;  // where it was given
};

struct MemoryPlan {
  std::vector<RankPlan> ranks;  // replica by replica, rank by rank: dp x tp
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  PlanDecisions decisions;
  Bytes budget_total = 0;
  std::string budget_source;     // "--device-memory", "cgroup limit", "half of what is available"
  std::optional<Error> refusal;  // Code::does_not_fit with arithmetic and what would work
};

// Errors: options that contradict the model (tp above its heads, ...). A plan that does not fit is
// a MemoryPlan with a refusal, so that its ledger can be shown.
Result<MemoryPlan> plan_memory(const Machine& machine, const ModelSpec& model,
                               const OptionSet& options);

// How far each option may be moved with the others as they are. Errors: as plan_memory().
Result<MemoryWindow> plan_window(const Machine& machine, const ModelSpec& model,
                                 const OptionSet& options);

// memory_plan_json.cc. Bytes are integers; terms and trust their names.
Json memory_plan_to_json(const MemoryPlan& plan);
// Errors: Code::invalid, naming the member.
Result<MemoryPlan> memory_plan_from_json(const Json& json);

}  // namespace plimsoll
