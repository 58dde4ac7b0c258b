// Engine: runs one StepPlan on this rank: buffers, KV cache and the decoder.
//
// One thread. Buffers come from the arena at creation, the KV cache once, later; a step allocates
// nothing.
#pragma once

#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/graph/decoder.h"
#include "worker/graph/weights.h"
#include "worker/schedule/step_plan.h"

namespace plimsoll {

struct EngineParts {
  const ModelSpec* spec = nullptr;
  const ShardPlan* shards = nullptr;
  const ModelWeights* weights = nullptr;
  Backend* backend = nullptr;
  Collective* collective = nullptr;
  Arena* arena = nullptr;
  DecoderLimits limits;
};

class Engine {
 public:
  // REQUIRES: everything pointed at outlives the engine. Errors: the arena's; a model family that
  // no decoder runs.
  static Result<Engine> create(const EngineParts& parts);

  // Once, before the first step. Errors: the memory cannot be had.
  Status allocate_kv(Blocks blocks, std::int64_t sequences_max);

  // REQUIRES: check_step(plan) passed. On rank 0: the logits [logit_rows, vocab], valid until the
  // next call. Errors: the collective's (a peer is gone).
  Result<TensorView> run(const StepPlan& plan);

  // From here on each step is told there, and whether it has rows of a prompt.
  void mark_steps(RankLine* line) { line_ = line; }

  const KvCache& cache() const { return cache_; }
  // Limits of a step, once KV is allocated.
  const StepLimits& step_limits() const { return step_limits_; }

 private:
  Engine(const DecoderLimits& limits, const ModelSpec& spec, const RankShard& shard,
         Decoder decoder);

  DecoderLimits limits_;
  Decoder decoder_;
  KvCache cache_;
  MappedMemory kv_memory_;
  StepLimits step_limits_;
  std::vector<SequenceRows> sequences_;
  RankLine* line_ = nullptr;
};

}  // namespace plimsoll
