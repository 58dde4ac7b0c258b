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

void StepBudget::observe(Tokens prompt_rows, Tokens answer_rows, Duration took) {
  if (prompt_rows < kStepRowsMin) return;
  row_seconds_ = to_seconds(took) / static_cast<double>(prompt_rows + answer_rows);
}

}  // namespace plimsoll
