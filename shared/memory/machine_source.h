// MachineSource: the machine that options mean: this one, a description, or simulated devices.
#pragma once

#include <optional>

#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/machine/nvml.h"
#include "shared/options/options.h"

namespace plimsoll {

// Does the I/O that plan_memory() does not: /proc, NVML (only where `--devices cuda` asks for it)
// or the file of `--machine`. Machine::devices is empty where ranks run on the CPU.
// Errors: those of reading; Code::invalid where a description has no devices of the kind; and
// Code::unavailable where this machine has no GPU.
Result<Machine> find_machine(const Options& options, LostGpus lost = LostGpus::refused);

// With as many simulated devices as there are ranks, where the options give their sizes; nullopt:
// the devices are those of `machine`, whatever the layout.
std::optional<Machine> machine_of_ranks(const Machine& machine, const Options& options);

}  // namespace plimsoll
