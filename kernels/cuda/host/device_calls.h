// DeviceCalls: what kernels ask of the Executor that runs them: identity, barriers, warp
// operations, shared memory. Called through kernels/cuda/device.h only, on a fibre.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::host_cuda {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  unsigned count() const { return x * y * z; }
};

struct ThreadIds {
  Dim3 thread, block, block_dim, grid_dim;
};

// Of the CUDA thread that runs on this OS thread. Fibres never move to another one.
extern constinit thread_local const ThreadIds* current_ids;

// Where in a kernel a call stands.
struct Site {
  const char* file = "";
  int line = 0;
  const char* what = "";
};

unsigned lane_index();
void block_barrier(const Site& site);

// Meets the other lanes of `mask`: the last to arrive runs `function` over what all of them
// brought. `arguments` has an entry a lane; those outside the mask are not valid.
using WarpFunction = void (*)(void* const* arguments, std::uint32_t mask);
struct WarpOperation {
  WarpFunction function = nullptr;  // nullptr: only meet
  bool orders_memory = false;       // as __syncwarp() does and a shuffle does not
};
void warp_operation(std::uint32_t mask, void* argument, const WarpOperation& operation,
                    const Site& site);

// In a loop that waits for other threads: lets them run.
void spin_pause(const Site& site);

std::byte* dynamic_shared();
// The block's memory for the declaration at that place.
void* static_shared(std::size_t bytes, const char* file, int line);

// Ends the launch with an error that says so and which thread said it.
[[noreturn]] void kernel_fault(const char* message, const Site& site);

}  // namespace plimsoll::host_cuda
