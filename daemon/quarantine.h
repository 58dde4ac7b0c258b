// Quarantine: devices that have failed, and what is planned and started without them. Pure.
//
// A device is known by its UUID; a simulated one is given a name in its place. The list is the
// supervisor's, and ends with the daemon or by `plimsoll restart`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/options.h"

namespace plimsoll {

struct QuarantinedDevice {
  std::string uuid;
  std::string name;    // "NVIDIA H200"; empty: not known
  std::string reason;  // "Xid 79: it has fallen off the bus"
  TimePoint since;
};
using Quarantine = std::vector<QuarantinedDevice>;
const QuarantinedDevice* find_quarantined(const Quarantine& quarantine, const std::string& uuid);

// "GPU-1 (NVIDIA H200)".
std::string device_words(const std::string& uuid, const std::string& name);

// Simulated devices get something to be known by, which begins so.
constexpr const char* kSimulatedName = "simulated-";
void name_simulated(Machine& machine);

// Leaves these devices out, and answers how many replicas the rest is enough for, at most those
// that are wanted. Errors: does_not_fit: not even for one.
Result<std::int64_t> leave_out(const Quarantine& quarantine, const Options& options,
                               Machine& machine);

// The UUIDs of the devices of a plan's replica; of the CPU none.
std::vector<std::string> devices_of(const MemoryPlan& plan, std::int64_t index, std::int64_t tp);

// Moves that replica of the plan to devices that are neither in use nor in quarantine, each of
// which has room for what was planned. Whether there are as many.
struct Spares {
  const std::vector<Device>& devices;  // in order
  const std::vector<std::string>& in_use;
  const Quarantine& quarantine;
};
bool move_to_spares(const Spares& spares, std::int64_t index, std::int64_t tp, MemoryPlan& plan);

}  // namespace plimsoll
