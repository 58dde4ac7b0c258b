// Placement: takes this process's memory from the node that the plan gave its rank, where it can.
#pragma once

#include "shared/base/result.h"

namespace plimsoll {

// Memory that this thread, and those that it starts from now on, touches from now on. Errors:
// unavailable, when the kernel or a container refuses; the process can go on unbound.
Status bind_to_memory_node(int node);
// CPUs that this thread may run on.
int usable_cpus();

}  // namespace plimsoll
