#include "worker/step_runner.h"

#include <algorithm>

#include "shared/memory/step_message.h"
#include "shared/model/dtype.h"

namespace plimsoll {

StepRunner::StepRunner(const StepSize& size) : size_(size) {}

Status StepRunner::allocate_kv(const KvRequest& request) {
  TRY(take_kv(request));
  // Sequences that share blocks name more of them than there are, as far as the ring has room.
  const Blocks named =
      std::min(request.sequences_max * ceil_div(size_.context_length, kKvBlockTokens),
               ring_blocks_max(size_.rows_max, request.sequences_max, size_.logit_rows_max));
  step_limits_ = {.rows_max = size_.rows_max,
                  .sequences_max = request.sequences_max,
                  .logit_rows_max = size_.logit_rows_max,
                  .kv_blocks = request.blocks,
                  .table_blocks_max = std::max(request.blocks, named)};
  is_touched_.assign(static_cast<std::size_t>(request.blocks), request.prefault);
  touched_ = request.prefault ? request.blocks : 0;
  return {};
}

Result<TensorView> StepRunner::run(const StepPlan& plan) {
  mark(plan);
  touch(plan);
  return compute(plan);
}

Result<StepRunner::Sampled> StepRunner::run(const StepPlan& plan,
                                            std::span<const cuda::RowSample> rows) {
  mark(plan);
  touch(plan);
  return compute_sampled(plan, rows);
}

void StepRunner::mark(const StepPlan& plan) {
  if (line_ == nullptr) return;
  const bool prefills = std::ranges::any_of(
      plan.sequences, [](const StepSequence& sequence) { return sequence.tokens > 1; });
  line_->activity.store(prefills ? Activity::prefill : Activity::decode);
  line_->steps.fetch_add(1);
}

// A step writes the blocks of its last tokens; the ones before have been written.
void StepRunner::touch(const StepPlan& plan) {
  if (touched_ == step_limits_.kv_blocks) return;
  for (const std::int32_t block : plan.blocks) {
    const auto index = static_cast<std::size_t>(block);
    if (is_touched_[index]) continue;
    is_touched_[index] = true;
    ++touched_;
  }
}

}  // namespace plimsoll
