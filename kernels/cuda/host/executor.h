// Executor: runs CUDA kernels on the calling OS thread: each CUDA thread is a fibre.
//
// A thread runs until it waits for others (barrier, warp operation, spin_pause) and then jumps
// straight to the next that can run. Which that is, and the order of blocks, follows from a seed,
// so that a barrier that is missing shows as a wrong value under some seed; under ThreadSanitizer
// each CUDA thread is a thread of its own, so that it shows as a race under any. One OS thread uses
// an executor; several may have one each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/host/device_calls.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"

namespace plimsoll::host_cuda {

struct Grid {  // one launch
  const char* kernel = "";
  void (*entry)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  Dim3 grid, block;
  std::size_t shared_bytes = 0;  // of dynamic shared memory, a block
  bool is_resident = false;      // all blocks run at a time: they wait for those of another grid
};

struct ExecutorOptions {
  std::uint64_t seed = 0;  // 0: ascending, 1: descending, others: an order of their own
  unsigned resident = 1;   // blocks of a grid that run at a time
  Duration spin_deadline = seconds(5);  // where threads do nothing but spin
};

struct ExecutorCounters {
  std::uint64_t threads = 0;  // CUDA threads that ran
  std::uint64_t switches = 0;
  std::uint64_t barriers = 0;         // arrivals
  std::uint64_t warp_operations = 0;  // arrivals
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs all of them to their end, at the same time. Errors (internal): threads that can never go
  // on and where they wait, a warp operation that lanes disagree on, shared memory overrun, a
  // kernel's own fault. After an error the executor can be used again.
  Status run(std::span<const Grid> grids);
  Status run(const Grid& grid) { return run(std::span(&grid, 1)); }

  const ExecutorCounters& counters() const;

  class Schedule;

 private:
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace plimsoll::host_cuda
