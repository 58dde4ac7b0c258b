// KernelCheck: every operation of a backend against another one, on the same random inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

struct KernelCheck {
  std::size_t index = 0;
  std::string name;  // "linear Q4_1, 5 tokens"
  double worst = 0;  // largest difference, as a share of the largest value; infinite: no number
  // Inputs are rounded to int8, where sums in another order may tie otherwise.
  double tolerance = 0;
  std::string error;  // what the operation failed by
  bool passed() const { return error.empty() && worst <= tolerance; }
};

struct KernelCheckRun {
  std::uint64_t seed = 1;
  std::size_t from = 0;  // the first check's index: a run may go on where another has ended
  std::function<void(std::size_t index, const std::string& name)> begins;
  std::function<void(const KernelCheck&)> ended;
};

// False where it ended before the last check: after the first that failed by an error, since a
// device may do nothing any more then.
bool check_kernels(Backend& tested, Backend& reference, const KernelCheckRun& run);

}  // namespace plimsoll
