// BindingRanks: the few ranks that decide a plan, of however many unlike devices there are.
//
// Ranks with like shares on like GPUs have rows that grow alike with a step: what one has left
// after them is more than what another has by the same bytes, whatever the step is. So of each kind
// only the tightest one counts, and a plan for a thousand unlike devices takes no longer than for a
// few.
#pragma once

#include "shared/memory/memory_fit.h"

namespace plimsoll {

// Inputs with ranks left out that cannot change what is decided of them by the same rule (for
// utilization: with the same fraction). Of the smallest devices and of the others each kind keeps
// its own, since they may be tried with less memory than they have; of a utilization those that
// decide then stay too.
FitInputs binding_ranks(const FitInputs& in);

}  // namespace plimsoll
