// DeathPipe: ends this process as soon as its supervisor is gone, whatever else it is doing.
#pragma once

#include <thread>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// Exit status of a process that ends since its supervisor is gone: for nobody to read but strace.
constexpr int kOrphanExitCode = 75;

// Watches the inherited socket for its other end to close, on a thread of its own, which never
// reads from it; and asks the kernel for SIGKILL at the parent's death, for when even that thread
// cannot run.
class DeathPipe {
 public:
  // Errors: no descriptor of that number, the parent is gone already.
  static Result<DeathPipe> watch(int parent_fd);
  DeathPipe(DeathPipe&&) = default;
  ~DeathPipe();

 private:
  DeathPipe(UniqueFd stop, std::thread thread)
      : stop_(std::move(stop)), thread_(std::move(thread)) {}

  UniqueFd stop_;  // an eventfd that ends the thread
  std::thread thread_;
};

}  // namespace plimsoll
