// FakeCuda: the device behind cuda_driver.cc and cuda_driver_memory.cc, and what their functions
// begin with.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mman.h>

#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/host_runtime.h"

namespace fake_cuda {

namespace cuda = plimsoll::cuda;
using cuda::CuAccess;
using cuda::CuAllocationProperties;
using cuda::CuContext;
using cuda::CuDevice;
using cuda::CuFunction;
using cuda::CuGraph;
using cuda::CuGraphExec;
using cuda::CuMemory;
using cuda::CuModule;
using cuda::CuPointer;
using cuda::CuResult;
using cuda::CuStream;
using cuda::CuUuid;

constexpr CuResult kInvalidContext = 201;
constexpr CuResult kInvalidHandle = 400;
constexpr CuResult kLaunchFailed = 719;
constexpr CuResult kCaptureUnsupported = 900;
constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kContextBytes = std::size_t{32} << 20;
constexpr std::size_t kMemoryDefault = std::size_t{1} << 30;
constexpr int kSharedDefault = 48 * 1024;
constexpr int kSharedOptin = 99 * 1024;
constexpr unsigned kGridMax = 65'535;  // of y and z
constexpr unsigned kBlockMax = 1024;
constexpr std::uint64_t kSeed = 2;

inline std::size_t rounded(std::size_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

inline std::byte* address(CuPointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

struct Function {
  cuda::Kernel kernel;
  int dynamic_max = kSharedDefault;
};

using Work = std::function<CuResult()>;

struct Device {
  bool is_started = false;
  int contexts = 0;
  std::size_t total = kMemoryDefault;
  std::size_t used = 0;
  std::map<CuPointer, std::size_t> allocations;
  std::map<CuPointer, std::size_t> reserved;
  std::map<CuPointer, std::size_t> mapped;
  std::map<CuPointer, std::size_t> foreign;  // of them, those of other processes
  struct Created {
    std::size_t bytes = 0;
    bool is_mapped = false;
    int descriptor = -1;      // of memory that other processes may map
    bool is_foreign = false;  // it is another's
  };
  std::map<cuda::CuMemory, Created> created;  // not released
  cuda::CuMemory next_memory = 1;
  std::vector<std::unique_ptr<Function>> functions;
  std::optional<plimsoll::host_cuda::Executor> executor;
  std::vector<Work> queue;
  std::vector<std::unique_ptr<std::vector<Work>>> graphs;
  bool is_capturing = false;
  CuResult sticky = 0;
  std::string why;

  std::string failing;  // symbol
  CuResult fail_with = 0;
  int fail_after = 0;
};

// Kernels that wait for other processes give up by themselves, before this.
constexpr plimsoll::Duration kSpinDeadline = plimsoll::seconds(120);

inline Device& device() {
  static Device the_only;
  return the_only;
}

inline thread_local bool has_context = false;

// What the call is to fail by: 0, nothing.
inline CuResult injected(std::string_view symbol) {
  Device& on = device();
  if (symbol != on.failing) return 0;
  if (on.fail_after > 0) {
    --on.fail_after;
    return 0;
  }
  return on.fail_with;
}

inline CuResult enter(std::string_view symbol) {
  if (const CuResult result = injected(symbol); result != 0) return result;
  if (!device().is_started) return cuda::kCuNotInitialized;
  return 0;
}

inline CuResult enter_context(std::string_view symbol, bool may_capture = false) {
  if (const CuResult result = enter(symbol); result != 0) return result;
  if (!has_context) return kInvalidContext;
  if (device().is_capturing && !may_capture) return kCaptureUnsupported;
  return device().sticky;
}

#define ENTER(call) \
  if (const CuResult result = (call); result != 0) return result

// Device memory is this process's for as long as work runs.
inline void protect(int protection) {
  for (const auto* ranges : {&device().allocations, &device().mapped}) {
    for (const auto& [begin, bytes] : *ranges) ::mprotect(address(begin), bytes, protection);
  }
}

inline bool is_there(CuPointer begin, std::size_t bytes) {
  for (const auto* ranges : {&device().allocations, &device().mapped}) {
    for (const auto& [start, length] : *ranges) {
      if (begin >= start && begin + bytes <= start + length) return true;
    }
  }
  return false;
}

inline void enqueue(Work work) {
  if (device().is_capturing) {
    device().graphs.back()->push_back(std::move(work));
  } else {
    device().queue.push_back(std::move(work));
  }
}

inline CuResult take(std::size_t bytes) {
  Device& on = device();
  if (on.used + bytes > on.total) return cuda::kCuOutOfMemory;
  on.used += bytes;
  return 0;
}

inline CuPointer map_addresses(std::size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? 0 : reinterpret_cast<CuPointer>(map);
}

}  // namespace fake_cuda

extern "C" {
#define EXPORT __attribute__((visibility("default")))
namespace fake_cuda {
#define PLIMSOLL_ROW(member, symbol, parameters) EXPORT CuResult symbol parameters;
PLIMSOLL_DRIVER_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
}  // namespace fake_cuda
}
