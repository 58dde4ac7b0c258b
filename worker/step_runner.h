// StepRunner: runs the steps of one rank: a decoder over its weights, or a simulation of one.
//
// One thread. KV is allocated once, after loading; a step allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/kernel_arguments.h"
#include "kernels/tensor.h"
#include "shared/base/replica_segment.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "worker/schedule/step_plan.h"

namespace plimsoll {

struct KvRequest {
  Blocks blocks = 0;
  std::int64_t sequences_max = 0;
  bool prefault = false;  // touch all of it now
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Once, before the first step. Errors: the memory cannot be had.
  Status allocate_kv(const KvRequest& request);

  // REQUIRES: check_step(plan) passed. On rank 0: the logits [logit_rows, vocab], valid until the
  // next call. Errors: the collective's (a peer is gone).
  Result<TensorView> run(const StepPlan& plan);
  // The same; where it can, a device draws a token from each row of logits instead.
  struct Sampled {
    std::span<const std::int32_t> tokens;  // none, or one a row; below 0: by logits
    TensorView logits;                     // no rows where all tokens are there
  };
  Result<Sampled> run(const StepPlan& plan, std::span<const cuda::RowSample> rows);

  // From here on each step is told there, and whether it has rows of a prompt.
  void mark_steps(RankLine* line) { line_ = line; }

  // Limits of a step, once KV is allocated.
  const StepLimits& step_limits() const { return step_limits_; }
  // Blocks that have ever held a token, or were touched at start.
  Blocks kv_blocks_touched() const { return touched_; }

 protected:
  struct StepSize {
    Tokens rows_max = 0;
    std::int64_t logit_rows_max = 0;
    Tokens context_length = 0;
  };
  explicit StepRunner(const StepSize& size);
  StepRunner(StepRunner&&) = default;
  StepRunner& operator=(StepRunner&&) = default;

  virtual Status take_kv(const KvRequest& request) = 0;
  virtual Result<TensorView> compute(const StepPlan& plan) = 0;
  virtual Result<Sampled> compute_sampled(const StepPlan& plan,
                                          std::span<const cuda::RowSample> rows) {
    (void)rows;
    return Sampled{.tokens = {}, .logits = TRY(compute(plan))};
  }

 private:
  void mark(const StepPlan& plan);
  void touch(const StepPlan& plan);

  StepSize size_;
  StepLimits step_limits_;
  std::vector<bool> is_touched_;  // by block
  Blocks touched_ = 0;
  RankLine* line_ = nullptr;
};

}  // namespace plimsoll
