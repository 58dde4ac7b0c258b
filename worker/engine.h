// Engine: the StepRunner that computes: buffers, KV cache and the decoder. Buffers come from the
// arena at creation.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/graph/decoder.h"
#include "worker/graph/step_recorder.h"
#include "worker/graph/weights.h"
#include "worker/kv/device_kv.h"
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
  Blocks kv_blocks_max = 0;            // that KV may have; on a device their addresses are reserved
  std::int64_t recorded_rows_max = 0;  // decode batches that are recorded, where the backend can
};

class Engine final : public StepRunner {
 public:
  // REQUIRES: everything pointed at outlives the engine. Errors: the arena's; a model family that
  // no decoder runs.
  static Result<Engine> create(const EngineParts& parts);

  const KvCache& cache() const { return *cache_; }
  // Of the KV cache's memory, by the kernel's word, where it is this process's. Errors:
  // unavailable.
  Result<Bytes> kv_bytes_resident() const { return touched_bytes(kv_memory_.bytes()); }
  // That the device had less of once recordings and the block that they pad with were there.
  Bytes recording_bytes() const { return recording_bytes_; }

 private:
  Engine(const EngineParts& parts, const RankShard& shard, Decoder decoder);
  Status prepare_device(const EngineParts& parts);
  Status take_kv(const KvRequest& request) override;
  Result<TensorView> compute(const StepPlan& plan) override;

  // Where they are stays, whoever moves the engine.
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  MappedMemory kv_memory_;
  std::optional<DeviceKv> device_kv_;
  std::optional<StepRecorder> recorder_;
  Bytes recording_bytes_ = 0;
  std::vector<SequenceRows> sequences_;
};

}  // namespace plimsoll
