// MemoryPlan: who may use how much, decided before a byte of weights is loaded.
//
// A pure function of machine, model and options: no I/O, deterministic. One ledger a rank; every
// row says what it is, how it was computed and how far to trust it. See MEMORY.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/model/kv_shape.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "shared/options/option_set.h"

namespace plimsoll {

// What memory is for. Names are those of `--assume`.
enum class Term {
  context,     // CUDA context and modules
  collective,  // communicators, buffers that peers map
  weights,
  absorbed,  // copies of latent attention's kv_b, split per head and transposed
  vision,
  draft,  // weights of the draft model
  tables,
  activations,
  workspace,
  logits,
  ep_buffer,  // of expert parallelism
  graphs,
  process,
  margin,
  kv,
};
constexpr std::size_t kTermCount = 15;
const char* term_name(Term term);  // "weights", "ep-buffer"

// When a term's bytes appear.
enum class Phase { start, load, buffers, capture, serve };
Phase term_phase(Term term);
const char* phase_name(Phase phase);

enum class Trust { computed, measured, learned, assumed, margin };
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
  std::int64_t device = -1;  // of Machine::devices; -1: the CPU
  std::string device_name;
  std::string device_uuid;  // of a GPU
  Bytes device_total = 0;
  Bytes held_by_others = 0;       // of the device, now
  Bytes free_before_weights = 0;  // with context and communicators up
  Bytes budget = 0;               // of this rank
  std::vector<PlanRow> rows;      // KV last; the sum is at most the budget in a plan that fits
  // As many replicas' ranks map the same packed weights, of so many bytes; the row has this one's
  // part of them. Without sharers the row has all.
  std::int64_t weight_sharers = 1;
  Bytes shared_weights = 0;
  Bytes bytes(Term term) const;
  Bytes packed_weights() const;  // whole, however many share them
  Bytes total() const;
};

// What the options left to `auto`, decided.
struct PlanDecisions {
  Tokens context_length = 0;
  Tokens context_length_min = 0;     // what the launch may still lower it to; 0: it was given
  Tokens context_length_wanted = 0;  // with memory for it
  std::int64_t max_running_requests = 0;
  Tokens step_tokens_max = 0;  // rows of one step (chunked prefill's upper bound)
  std::int64_t logit_rows_max = 0;
  std::int64_t cuda_graph_max_bs = 0;  // 0: no graphs
  Blocks kv_blocks = 0;                // of each rank of each replica
  KvType kv_type = KvType::f16;
  std::vector<std::string> notes;  // one line for each thing that was lowered, and why
};

// What one option may be with everything else as it is; both ends are exact: one step beyond is
// refused. No value at all: the window is empty, and `binds_low` and `binds_high` say why.
struct OptionWindow {
  std::string option = {};
  bool is_empty = false;
  std::int64_t low = 0;  // in the option's own unit; of an empty window what the low end needs
  std::int64_t high = 0;
  std::string binds_low = {};
  std::string binds_high = {};
};

struct MemoryWindow {
  std::vector<OptionWindow> options;
  // The smallest value of mem-fraction-static that leaves KV anything at all, where it is given.
  std::optional<Millionths> fraction_of_any_kv;
  const OptionWindow* find(std::string_view option) const;
  // That are not empty.
  const OptionWindow* open(std::string_view option) const;
};

// What `auto` would do in place of the option that sizes KV.
struct AutoChoice {
  Bytes kv_bytes = 0;  // of the rank that has most
  Tokens kv_tokens = 0;
  Tokens context_length = 0;
  std::int64_t max_running_requests = 0;
  std::optional<Millionths> fraction;  // of free memory before weights: what it is equivalent to
};

struct KvFigures {
  Bytes bytes = 0;  // of the rank that has most
  Blocks blocks = 0;
  Tokens tokens = 0;  // of a replica
  Bytes bytes_per_token = 0;
  double copies = 1;  // how often a replica's ranks hold the same token together
};

struct MemoryPlan {
  std::vector<RankPlan> ranks;  // replica by replica, rank by rank: dp x tp
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::string devices = "cpu";  // "cpu", "cuda", "simulated"
  std::string machine;          // of a description; empty: this one
  PlanDecisions decisions;
  std::vector<std::string> assumptions;  // of the model, where its weights were derived
  KvFigures kv;
  std::optional<AutoChoice> auto_choice;  // where an option sizes KV, and auto would fit
  Bytes budget_total = 0;
  std::string budget_source;     // "--device-memory", "cgroup limit", "half of what is available"
  std::optional<Error> refusal;  // Code::does_not_fit with arithmetic and what would work
};

// Errors: options that contradict the model (tp above its heads, ...). A plan that does not fit is
// a MemoryPlan with a refusal, so that its ledger can be shown.
Result<MemoryPlan> plan_memory(const Machine& machine, const ModelSpec& model,
                               const OptionSet& options, const ModelSpec* draft = nullptr);

// How far each option may be moved with the others as they are. Errors: as plan_memory().
Result<MemoryWindow> plan_window(const Machine& machine, const ModelSpec& model,
                                 const OptionSet& options, const ModelSpec* draft = nullptr);

// memory_plan_json.cc. Bytes are integers; terms and trust their names. docs/plan.md has every key.
constexpr std::int64_t kPlanJsonVersion = 1;
Json memory_plan_to_json(const MemoryPlan& plan);
Json memory_window_to_json(const MemoryWindow& window);
// Errors: Code::invalid, naming the member.
Result<MemoryPlan> memory_plan_from_json(const Json& json);

}  // namespace plimsoll
