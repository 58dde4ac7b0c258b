// Planner: the plan of a set of options on this machine as it is now.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "daemon/events.h"
#include "daemon/launch_plan.h"
#include "shared/base/result.h"

namespace plimsoll {

// `own` are the processes that a new deployment would replace: what they hold counts as free.
// Errors: of the options or the model file. A plan that does not fit has its refusal.
// Without devices in quarantine it is of as many replicas as the others are enough for. What ranks
// of it have found on their devices goes before what the driver says.
Result<LaunchPlan> make_launch_plan(const OptionSet& options, std::span<const std::int64_t> own,
                                    const Quarantine& without = {},
                                    std::span<const DeviceFound> found = {});

// The same as an event. It names who holds much of the memory before anything is planned on top of
// them: as notes of the plan, or in its refusal where it would fit without them.
Planned plan_launch(const OptionSet& options, std::span<const std::int64_t> own,
                    const Quarantine& without = {}, std::span<const DeviceFound> found = {});

// Those that the options choose, as they are now.
Result<std::vector<Device>> find_devices(const OptionSet& options);

// Memory that goes back to the machine when a process ends: anonymous and shared pages, as its
// share. Zero where that cannot be read. `root` stands before /proc, for tests.
Bytes releasable_bytes(std::int64_t pid, const std::filesystem::path& root = "/");

}  // namespace plimsoll
