// Worker: the life of one rank's process: hello, planned, loading, ready, draining, gone.
//
// Talks to its supervisor over the control channel, gets descriptors from the inherited socket, and
// on rank 0 serves the routers. Everything happens on the one thread that calls run_worker; the
// backend's threads help inside a step.
#pragma once

#include "worker/worker_arguments.h"

namespace plimsoll {

// Until it is drained or something fails; then the supervisor has been told what. Returns the exit
// code.
int run_worker(const WorkerArguments& arguments);

}  // namespace plimsoll
