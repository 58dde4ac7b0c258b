// HeldMemory: who else holds the memory that a plan would fit in, on this machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/machine/machine.h"
#include "shared/options/option_set.h"

namespace plimsoll {

// Whether it would fit if nobody else held any memory.
bool fits_alone(Machine machine, const OptionSet& options);

// A line for each process but `own` that holds much of this machine's memory, or any of its
// devices.
std::vector<std::string> large_holders(const Machine& machine, std::span<const std::int64_t> own);
// Where it does not fit, also those that hold less.
std::vector<std::string> all_holders(const Machine& machine, std::span<const std::int64_t> own);

// To be added to a refusal: "\nOther processes hold the memory that it would fit in:..."
std::string holders_text(std::span<const std::string> holders);

}  // namespace plimsoll
