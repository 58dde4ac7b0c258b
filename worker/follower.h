// Follower: a rank other than 0: runs the steps that rank 0 puts into the ring.
#pragma once

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "worker/collective/collective.h"
#include "worker/schedule/step_plan.h"
#include "worker/schedule/step_ring.h"
#include "worker/step_runner.h"

namespace plimsoll {

enum class Followed { nothing, step, stop };

class Follower {
 public:
  struct Parts {
    StepRunner* engine = nullptr;  // with KV
    Collective* collective = nullptr;
    StepReceiver* receiver = nullptr;
    StepLimits limits;
  };
  // REQUIRES: what is pointed at outlives the follower.
  explicit Follower(const Parts& parts);

  // Waits at most that long for a step and runs it. After a stop no step follows. Errors: a peer
  // rank is gone (unavailable), a step that cannot be run (internal).
  Result<Followed> follow(Duration timeout);
  std::int64_t steps() const { return steps_; }

 private:
  Parts parts_;
  StepPlan plan_;
  std::int64_t steps_ = 0;
};

}  // namespace plimsoll
