// Engine: the StepRunner that computes: buffers, KV cache and the decoder. Buffers come from the
// arena at creation.
#pragma once

#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/graph/decoder.h"
#include "worker/graph/weights.h"
#include "worker/process_memory.h"
#include "worker/schedule/step_plan.h"
#include "worker/step_runner.h"

namespace plimsoll {

struct EngineParts {
  const ModelSpec* spec = nullptr;
  const ShardPlan* shards = nullptr;
  const ModelWeights* weights = nullptr;
  Backend* backend = nullptr;
  Collective* collective = nullptr;
  Arena* arena = nullptr;
  DecoderLimits limits;
  KvType kv_type = KvType::f16;
};

class Engine final : public StepRunner {
 public:
  // REQUIRES: everything pointed at outlives the engine. Errors: the arena's; a model family that
  // no decoder runs.
  static Result<Engine> create(const EngineParts& parts);

  const KvCache& cache() const { return cache_; }
  // Of the KV cache's memory, by the kernel's word. Errors: unavailable.
  Result<Bytes> kv_bytes_resident() const { return touched_bytes(kv_memory_.bytes()); }

 private:
  Engine(const EngineParts& parts, const RankShard& shard, Decoder decoder);
  Status take_kv(const KvRequest& request) override;
  Result<TensorView> compute(const StepPlan& plan) override;

  Decoder decoder_;
  KvCache cache_;
  MappedMemory kv_memory_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace plimsoll
