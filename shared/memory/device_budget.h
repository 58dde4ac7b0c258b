// DeviceBudget: how much one rank may use of its device, and what was free before weights.
#pragma once

#include <optional>
#include <string>

#include "shared/base/units.h"
#include "shared/machine/machine.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/options.h"

namespace plimsoll {

// Of a device that shares the host's memory: what the host must keep.
constexpr Bytes kHostFloor = 4 * kGiB;

struct DeviceBudget {
  Bytes limit = 0;                // that all rows together may take
  Bytes free_before_weights = 0;  // with context and communicators up; SGLang's and vLLM's base
  Trust trust = Trust::computed;  // of the latter
  std::string source;             // "free now on NVIDIA H200"
};

// `start` is what context and communicators take. `assumed_free` replaces what is free before
// weights (`--assume free=`).
DeviceBudget decide_device_budget(const Device& device, Bytes start,
                                  std::optional<Bytes> assumed_free, const Options& options);

}  // namespace plimsoll
