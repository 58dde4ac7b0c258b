// Router: joins HTTP, dispatch and control on one io_context and one thread.
//
// Life: Hello, RouterSetup and the listening socket in, tokenizer loaded, Listening out; then
// serving until Drain is done (exit 0) or the parent's end of the socket pair closes (at once).
#pragma once

#include <string>

#include "router/http/http_limits.h"
#include "shared/base/result.h"
#include "shared/control/descriptors.h"

namespace plimsoll {

struct RouterArguments {
  std::string control_endpoint;
  std::string instance;  // of the daemon that started us; said back in Hello
  int parent_fd = kParentFd;
  bool ends_on_sigterm = true;  // off where the router is a thread of a test
  HttpLimits http;
};

// Returns the exit code. An error has been told to the daemon as a Fault, as far as it listens.
Result<int> run_router(const RouterArguments& arguments);

}  // namespace plimsoll
