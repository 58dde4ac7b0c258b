// StepBudget: how many rows the next step should have, so that it lasts at most step_time_max.
//
// Pure: told how long steps took. Rows of long prompts cost more (attention grows), so the estimate
// is what was measured last. A better time is believed too: no step is quicker than its rows.
#pragma once

#include <optional>

#include "shared/base/clock.h"
#include "shared/base/units.h"

namespace plimsoll {

// Fewer rows tell nothing about the cost of one: a step's fixed cost (reading the weights) hides
// it. Also the least that a budget gives, so that prompts advance in any case.
constexpr Tokens kStepRowsMin = 16;

class StepBudget {
 public:
  struct Options {
    std::optional<Tokens> chunk_max;  // --chunked-prefill-size: a bound, below which rows adapt
    Tokens rows_max = 0;              // of one step, by the memory plan
    Duration step_time_max{};
  };
  explicit StepBudget(const Options& options);

  Tokens rows() const;
  // A step of so many rows of prompts, and beside them of answers.
  void observe(Tokens prompt_rows, Tokens answer_rows, Duration took);
  void set_step_time_max(Duration step_time_max) { options_.step_time_max = step_time_max; }

 private:
  Options options_;
  double row_seconds_ = 0;  // 0: nothing measured yet
};

}  // namespace plimsoll
