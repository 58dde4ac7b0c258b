// Search: the end of a range of integers on whose first part a condition holds.
#pragma once

#include <cstdint>

namespace plimsoll {

// The largest value of [first, last] for which `holds`, given that it holds up to some value and
// not above; `first` where it holds nowhere.
template <typename Holds>
std::int64_t largest_that(std::int64_t first, std::int64_t last, Holds holds) {
  while (first < last) {
    const std::int64_t middle = first + (last - first + 1) / 2;
    if (holds(middle)) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

}  // namespace plimsoll
