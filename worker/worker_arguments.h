// WorkerArguments: what the daemon starts a worker with.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/control/descriptors.h"

namespace plimsoll {

struct WorkerArguments {
  std::string control;   // endpoint of the daemon
  std::string instance;  // of the daemon, said back to it
  std::int64_t replica = 0;
  std::int64_t rank = 0;
  int parent_fd = kParentFd;     // another one in tests
  bool has_own_process = false;  // so that it may handle the process's crashes
};

// --control ENDPOINT --instance WORD --replica N --rank N
Result<WorkerArguments> parse_worker_arguments(std::span<const std::string> arguments);

}  // namespace plimsoll
