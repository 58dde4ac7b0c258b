// KernelCheck: every operation of a backend against another one, on the same random inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

struct KernelCheck {
  std::string name;  // "linear Q4_1, 5 tokens"
  double worst = 0;  // largest difference, as a share of the largest value; infinite: no number
  double tolerance =
      0;              // inputs are rounded to int8, where sums in another order may tie otherwise
  std::string error;  // what the operation failed by
  bool passed() const { return error.empty() && worst <= tolerance; }
};

std::vector<KernelCheck> check_kernels(Backend& tested, Backend& reference, std::uint64_t seed);

}  // namespace plimsoll
