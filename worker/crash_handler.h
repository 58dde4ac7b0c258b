// CrashHandler: what a rank still does when a signal ends it: it writes down which one and where,
// and lets its peers go, before the kernel spends minutes on a core dump.
//
// SIGSEGV, SIGBUS, SIGABRT, SIGFPE and SIGILL; the default action follows. One per process.
#pragma once

#include "shared/base/replica_segment.h"
#include "shared/base/result.h"

namespace plimsoll {

class CrashHandler {
 public:
  // REQUIRES: the segment's memory stays mapped until the handler is destroyed; no other one lives.
  static Result<CrashHandler> install(ReplicaSegment segment, int rank);
  CrashHandler(CrashHandler&& other) noexcept : is_installed_(other.is_installed_) {
    other.is_installed_ = false;
  }
  CrashHandler& operator=(CrashHandler&&) = delete;
  ~CrashHandler();

 private:
  CrashHandler() = default;
  bool is_installed_ = true;
};

}  // namespace plimsoll
