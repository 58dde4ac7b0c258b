// DeviceRuntime: one device's memory and its one stream of work: a GPU through its driver, or this
// CPU through the executor in host/.
//
// Calls but synchronize() only enqueue; work runs in order, some time before synchronize() returns.
// Host memory that is copied from or to must stay as it is until then. The first error of the
// stream is what synchronize() returns, then and ever after. One thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/kernel_list.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"
#include "shared/base/units.h"

namespace plimsoll::cuda {

struct Shape {
  unsigned x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Shape grid;
  Shape block;
  unsigned shared_bytes = 0;  // dynamic, at most kSharedBytesMax
};

// What every GPU that we run on has: 99 KiB a block less what the system takes.
constexpr unsigned kSharedBytesMax = 96 * 1024;

enum class Recording : std::size_t {};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual std::string description() const = 0;  // "NVIDIA H200 (SM 9.0)"
  virtual Result<DeviceMemory::State> memory() = 0;

  // Device memory, aligned to 256 bytes, zeroed. It lives as long as the runtime does.
  virtual Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) = 0;
  // Host memory that copies may go to and from without waiting.
  virtual Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) = 0;

  // Addresses without memory; map() puts memory behind whole granules of them, zeroed, which stay
  // where they are: what was recorded before goes on being right.
  virtual Bytes granule() const = 0;
  virtual Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) = 0;
  // REQUIRES: `part` begins on a granule of a reserved range and is not mapped yet.
  virtual Status map(std::span<std::byte> part, const std::string& purpose) = 0;
  // Of device memory, where it is this process's.
  virtual std::vector<std::span<const std::byte>> host_maps() const { return {}; }

  // Device memory that other processes may open by its handle, and another process's; as long-lived
  // as allocate()'s. Errors: a device that cannot share it, or does not reach what another one has.
  struct SharedMemory {
    std::span<std::byte> memory;
    UniqueFd handle;
  };
  virtual Result<SharedMemory> allocate_shared(Bytes bytes, const std::string& purpose) = 0;
  // REQUIRES: of as many bytes as were allocated.
  virtual Result<std::span<std::byte>> open_shared(UniqueFd handle, Bytes bytes,
                                                   const std::string& purpose) = 0;
  // Whole pages of this process's memory, as the device sees them until the runtime ends.
  virtual Result<std::span<std::byte>> show_host(std::span<std::byte> memory,
                                                 const std::string& purpose) = 0;

  // The stream as the driver's library has it, for other libraries; nullptr where there is no
  // driver.
  virtual void* native_stream() { return nullptr; }

  virtual void copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes) = 0;
  // REQUIRES: `arguments` is the kernel's struct. It is read before this returns.
  virtual void launch_bytes(Kernel kernel, const LaunchShape& shape,
                            std::span<const std::byte> arguments) = 0;
  virtual Status synchronize() = 0;

  // Launches between the two are kept and not run; replay() enqueues all of them, with the
  // arguments that they had. REQUIRES: nothing but launches in between.
  virtual Status begin_recording() = 0;
  virtual Result<Recording> end_recording() = 0;
  virtual void replay(Recording recording) = 0;
  // All of them are gone, for those whose work they have; what was replayed goes on.
  virtual void drop_recordings() = 0;

  template <typename Arguments>
  void launch(Kernel kernel, const LaunchShape& shape, const Arguments& arguments) {
    launch_bytes(kernel, shape, std::as_bytes(std::span(&arguments, 1)));
  }
};

}  // namespace plimsoll::cuda
