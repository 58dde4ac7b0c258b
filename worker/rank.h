// Rank: everything that one rank of a model holds, from the file to an engine that can run steps.
//
// Used by the worker process, by tests (ranks as threads) and by the engine benchmark.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/memory/memory_plan.h"
#include "shared/model/gguf.h"
#include "shared/model/model_spec.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/engine.h"
#include "worker/load/weight_loader.h"

namespace plimsoll {

class Rank {
 public:
  struct Setup {
    std::string model_path;
    ShardPlan shards;  // of all ranks of the replica
    RankPlan plan;     // of this one
    DecoderLimits limits;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Collective> collective;
  };
  // Opens the file, loads this rank's weights and prepares the engine, KV excluded.
  static Result<std::unique_ptr<Rank>> load(
      Setup setup, const std::function<void(const LoadProgress&)>& progress);

  const ModelSpec& spec() const { return spec_; }
  Backend& backend() { return *setup_.backend; }
  Collective& collective() { return *setup_.collective; }
  const Arena& arena() const { return arena_; }
  Engine& engine() { return *engine_; }
  // Bytes in use by term, for Loaded.
  Json measured() const;

 private:
  explicit Rank(Setup setup) : setup_(std::move(setup)) {}
  Status start(const std::function<void(const LoadProgress&)>& progress);

  Setup setup_;
  ModelSpec spec_;
  Arena arena_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace plimsoll
