// Rank: everything that one rank of a model holds, from the file to an engine that can run steps.
//
// Used by the worker process, by tests (ranks as threads) and by the engine benchmark.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/sealed_block.h"
#include "shared/base/unique_fd.h"
#include "shared/memory/measured.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/simulation.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/collective/table_choice.h"
#include "worker/engine.h"
#include "worker/load/weight_loader.h"
#include "worker/simulated_rank.h"

namespace plimsoll {

class Rank {
 public:
  // In place of a backend.
  struct Simulated {
    Bytes memory = 0;
    Simulation simulation;
    Blocks kv_blocks = 0;
    std::function<void(Duration)> pause;
  };
  // Memory that the weights are to lie in, so that they outlive this rank.
  struct KeptWeights {
    UniqueFd block;
    // While another process packs into it: for a moment, or why not any longer.
    std::function<Status()> wait;
  };
  struct Setup {
    std::string model_path;
    ShardPlan shards;  // of all ranks of the replica
    RankPlan plan;     // of this one
    DecoderLimits limits;
    KvType kv_type = KvType::f16;
    Blocks kv_blocks_max = 0;            // that KV may be told to have
    std::int64_t recorded_rows_max = 0;  // decode batches that are recorded, where that can be
    std::unique_ptr<Backend> backend = {};
    std::unique_ptr<Collective> collective = {};
    // Its part of what the replica's ranks share, of the memory that is planned for it.
    Bytes shared_memory = 0;
    std::optional<BackendTable> kept_table = {};  // of the collective, at an earlier start
    // Of a rank on a GPU: what its context and modules took.
    std::optional<Bytes> context = {};
    std::optional<Simulated> simulated = {};
    std::optional<KeptWeights> kept_weights = {};
  };
  // Opens the file, loads this rank's weights (or maps those that are kept of it) and prepares the
  // engine, KV excluded.
  static Result<std::unique_ptr<Rank>> load(
      Setup setup, const std::function<void(const LoadProgress&)>& progress);

  const ModelSpec& spec() const { return spec_; }
  std::string description() const;  // of the device: "cpu avx512-vnni, 2 threads"
  Collective& collective() { return *setup_.collective; }
  const Arena& arena() const { return simulated_ != nullptr ? simulated_->arena() : arena_; }
  StepRunner& engine();
  // With all other ranks; see table_choice.h. nullopt: nothing is to be chosen.
  Result<std::optional<ChosenTable>> choose_table();
  // What it holds now.
  Measured measure() const;

 private:
  explicit Rank(Setup setup) : setup_(std::move(setup)) {}
  Status start(const std::function<void(const LoadProgress&)>& progress);
  Status open_kept_weights(const std::function<void(const LoadProgress&)>& progress);
  Measured measure_device(DeviceMemory& device) const;
  Status start_simulated(const std::function<void(const LoadProgress&)>& progress);

  Setup setup_;
  ModelSpec spec_;
  std::optional<SealedBlock> kept_weights_;
  Arena arena_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SimulatedRank> simulated_;
};

}  // namespace plimsoll
