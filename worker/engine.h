// Engine: the StepRunner that computes: buffers, KV cache and the decoder. Buffers come from the
// arena at creation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/collective/table_choice.h"
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
  std::optional<BackendTable> kept_table = {};  // of the collective, at an earlier start
  std::function<void()> before_waiting = {};    // for its peers, which may take long
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
  // With all other ranks; see table_choice.h. Of a device it was made before steps were recorded.
  Result<std::optional<ChosenTable>> choose_table();

 private:
  Engine(const EngineParts& parts, const RankShard& shard, Decoder decoder);
  Status prepare_device(const EngineParts& parts, const DecoderBuffers& buffers);
  Status meet_peers(const EngineParts& parts, const DecoderBuffers& buffers);
  Status take_kv(const KvRequest& request) override;
  Result<TensorView> compute(const StepPlan& plan) override;
  Result<Sampled> compute_sampled(const StepPlan& plan,
                                  std::span<const cuda::RowSample> rows) override;
  Decoder::Input input_of(const StepPlan& plan);

  // Where they are stays, whoever moves the engine.
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  MappedMemory kv_memory_;
  std::optional<DeviceKv> device_kv_;
  std::optional<StepRecorder> recorder_;
  Bytes recording_bytes_ = 0;
  Collective* collective_;
  SelfTestSetup test_;
  std::optional<BackendTable> kept_table_;
  std::optional<ChosenTable> chosen_table_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace plimsoll
