#include "shared/memory/device_budget.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll {

DeviceBudget decide_device_budget(const Device& device, Bytes start,
                                  std::optional<Bytes> assumed_free, const Options& options) {
  DeviceBudget budget;
  if (assumed_free) {
    budget.free_before_weights = *assumed_free;
    budget.limit = *assumed_free + start;  // measured with its start, whatever is planned of that
    budget.trust = Trust::assumed;
    budget.source = "--assume free";
  } else if (device.free_before_weights) {
    budget.free_before_weights = *device.free_before_weights;
    budget.limit = *device.free_before_weights + start;
    budget.trust = Trust::measured;
    budget.source = "free before weights as described";
  } else {
    budget.limit = device.memory_free;
    budget.source = device.is_unified
                        ? fmt::format("free now, but {} for the host", format_bytes(kHostFloor))
                        : "free now";
    if (device.is_unified) budget.limit = std::max<Bytes>(0, budget.limit - kHostFloor);
    budget.free_before_weights = std::max<Bytes>(0, budget.limit - start);
  }
  // Measured with other communicators than these, perhaps.
  if (!assumed_free && budget.limit > device.memory_free) {
    budget.limit = device.memory_free;
    budget.free_before_weights =
        std::min(budget.free_before_weights, std::max<Bytes>(0, budget.limit - start));
    budget.source = "free now";
  }
  if (options.device_memory && *options.device_memory < budget.limit) {
    budget.limit = *options.device_memory;
    budget.free_before_weights =
        std::min(budget.free_before_weights, std::max<Bytes>(0, budget.limit - start));
    budget.source = "--device-memory";
  }
  return budget;
}

}  // namespace plimsoll
