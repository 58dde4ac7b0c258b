#include "kernels/cuda/recorded_steps.h"

#include <algorithm>

#include "kernels/cuda/launches.h"
#include "shared/base/check.h"

namespace plimsoll::cuda {

std::span<RecordedStep> RecordedSteps::add(std::int64_t rows, std::int64_t context_max) {
  const std::int64_t longest = ceil_div(context_max, std::int64_t{kSplitPages} * kPageTokens);
  const std::int64_t as_blocks = std::min(longest, kPartialsMax / rows);
  const std::size_t first = steps_.size();
  if (as_blocks > 1) steps_.push_back({.rows = rows, .splits = as_blocks});
  if (as_blocks < longest || as_blocks <= 1) steps_.push_back({.rows = rows, .splits = 1});
  return std::span(steps_).subspan(first);
}

const RecordedStep& RecordedSteps::find(std::int64_t rows, std::int64_t splits) const {
  const auto found = std::ranges::find_if(steps_, [&](const RecordedStep& step) {
    return step.rows == rows && (step.splits >= splits || step.splits == 1);
  });
  CHECK(found != steps_.end());
  return *found;
}

}  // namespace plimsoll::cuda
