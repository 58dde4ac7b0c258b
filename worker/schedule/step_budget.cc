#include "worker/schedule/step_budget.h"

#include <algorithm>

namespace plimsoll {
namespace {

// Steps of the same rows vary; aim below the limit by about as much.
constexpr double kAim = 0.8;
// Before anything was measured.
constexpr Tokens kRowsAtStart = 64;

}  // namespace

StepBudget::StepBudget(const Options& options) : options_(options) {}

Tokens StepBudget::rows() const {
  const Tokens planned = std::max<Tokens>(options_.rows_max, 1);
  const Tokens most = std::clamp<Tokens>(options_.chunk_max.value_or(planned), 1, planned);
  const Tokens least = std::min(kStepRowsMin, most);
  if (row_seconds_ <= 0) return std::clamp(kRowsAtStart, least, most);
  const double rows = kAim * to_seconds(options_.step_time_max) / row_seconds_;
  return rows >= static_cast<double>(most) ? most : std::max(static_cast<Tokens>(rows), least);
}

void StepBudget::observe(Tokens rows, Duration took) {
  if (rows < kStepRowsMin) return;
  const double measured = to_seconds(took) / static_cast<double>(rows);
  row_seconds_ = measured >= row_seconds_ ? measured : 0.5 * (row_seconds_ + measured);
}

}  // namespace plimsoll
