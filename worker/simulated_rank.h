// SimulatedRank: the StepRunner of a device that is not there: takes what the plan says, and what a
// Simulation hides, from bookkeeping; answers fixed tokens.
//
// It works at the level of a step and not of operators, so that a model whose graph cannot be
// computed here can be rehearsed all the same. Ranks meet in a barrier each step, as in
// collectives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/simulated/simulated_device.h"
#include "shared/control/messages.h"
#include "shared/memory/measured.h"
#include "shared/memory/memory_plan.h"
#include "shared/memory/simulation.h"
#include "worker/arena.h"
#include "worker/collective/collective.h"
#include "worker/load/load_progress.h"
#include "worker/step_runner.h"

namespace plimsoll {

class SimulatedRank final : public StepRunner {
 public:
  struct Setup {
    Bytes memory = 0;  // of the device
    Simulation simulation;
    RankPlan plan;
    Blocks kv_blocks = 0;  // that the plan's row is for
    Tokens rows_max = 0;
    std::int64_t logit_rows_max = 0;
    Tokens context_length = 0;
    std::int64_t vocab = 0;
    // Waits that long, open to what the supervisor says meanwhile.
    std::function<void(Duration)> pause;
  };
  // REQUIRES: the collective outlives it. Errors: internal where a term of the arena takes more
  // than its row of the plan; does_not_fit where the device is out of memory.
  static Result<std::unique_ptr<SimulatedRank>> load(
      Setup setup, Collective& collective,
      const std::function<void(const LoadProgress&)>& progress);

  const Arena& arena() const { return arena_; }
  std::string description() const;  // "simulated, 94.0 GiB"
  Measured measure() const;

 private:
  SimulatedRank(Setup setup, Collective& collective);
  Status load_weights(const std::function<void(const LoadProgress&)>& progress);
  Status take_phase(SimulatedPhase phase);
  Status take_rest();
  Status take(const std::string& term, Bytes bytes);
  const SimulatedCost* cost_of(const std::string& term) const;
  Bytes real_bytes(Term term) const;

  Status take_kv(const KvRequest& request) override;
  Result<TensorView> compute(const StepPlan& plan) override;

  Setup setup_;
  std::vector<SimulatedCost> costs_;  // of this rank
  Collective& collective_;
  SimulatedDevice device_;
  Arena arena_;
  Bytes kv_block_ = 0;
  bool has_stepped_ = false;
  MappedMemory logits_memory_;  // of rank 0: [logit_rows, vocab] f32, zeros, hardly touched
  TensorView logits_;
  std::vector<std::int32_t> said_;  // by row, of the last step
};

// What its device has when the context is there and nothing is loaded.
Opened open_simulated(Bytes memory, const Simulation& simulation, const RankPlan& plan);

}  // namespace plimsoll
