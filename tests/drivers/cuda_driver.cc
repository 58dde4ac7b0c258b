// A library with the driver's functions that kernels/cuda/driver_api.h names, over this process's
// memory and the host executor: put before the real one by LD_LIBRARY_PATH or opened by its path,
// it runs everything that talks to a GPU on machines without one.
//
// It is as strict as the driver where that is cheap: device memory cannot be touched but by work of
// a stream, work runs when the stream is waited for, the context must be current, launches beyond
// a limit fail, nothing may wait or allocate while launches are captured.
//
// FAKE_CUDA_MEMORY: bytes of the device; FAKE_CUDA_FAIL: "SYMBOL RESULT [CALLS]" fails that
// function from its CALLS-th call on (0, the default: at once); fake_cuda_fail() does the same.
#include <array>
#include <cstdio>
#include <cstdlib>

#include "tests/drivers/fake_cuda.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kArgumentBytes[] = {
#define PLIMSOLL_ROW(name, Arguments) sizeof(cuda::Arguments),
    PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};

}  // namespace

extern "C" {

EXPORT void fake_cuda_fail(const char* symbol, CuResult result, int after) {
  device().failing = symbol;
  device().fail_with = result;
  device().fail_after = after;
}
// Bytes that are allocated or mapped, and addresses that are reserved.
EXPORT std::size_t fake_cuda_held() {
  std::size_t held = device().used - static_cast<std::size_t>(device().contexts) * kContextBytes;
  for (const auto& [begin, bytes] : device().reserved) held += bytes;
  return held;
}

// Of other libraries that work on a stream. `drop` comes once neither the stream nor a graph has
// the work any more.
EXPORT void fake_cuda_enqueue(int (*work)(void*), void* argument, void (*drop)(void*)) {
  enqueue([work, kept = std::shared_ptr<void>(argument, drop)] { return work(kept.get()); });
}
EXPORT int fake_cuda_is_capturing() { return device().is_capturing ? 1 : 0; }

CuResult cuInit(unsigned) {
  Device& on = device();
  if (const char* fail = std::getenv("FAKE_CUDA_FAIL"); fail != nullptr && !on.is_started) {
    std::array<char, 64> symbol{};
    if (std::sscanf(fail, "%63s %d %d", symbol.data(), &on.fail_with, &on.fail_after) >= 2) {
      on.failing = symbol.data();
    }
  }
  if (const char* bytes = std::getenv("FAKE_CUDA_MEMORY")) on.total = std::stoull(bytes);
  ENTER(injected("cuInit"));
  on.is_started = true;
  return 0;
}

CuResult cuDriverGetVersion(int* version) {
  ENTER(injected("cuDriverGetVersion"));
  const char* given = std::getenv("FAKE_CUDA_VERSION");
  *version = given == nullptr ? 13'000 : std::atoi(given);
  return 0;
}

CuResult cuGetErrorName(CuResult result, const char** name) {
  ENTER(injected("cuGetErrorName"));
  switch (result) {
    case cuda::kCuOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return 0;
    case cuda::kCuNoBinaryForGpu:
      *name = "CUDA_ERROR_NO_BINARY_FOR_GPU";
      return 0;
    case cuda::kCuInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return 0;
    case kLaunchFailed:
      *name = "CUDA_ERROR_LAUNCH_FAILED";
      return 0;
    default:
      *name = nullptr;
      return cuda::kCuInvalidValue;
  }
}

CuResult cuGetErrorString(CuResult result, const char** text) {
  ENTER(injected("cuGetErrorString"));
  *text = result == kLaunchFailed && !device().why.empty() ? device().why.c_str() : "as injected";
  return 0;
}

CuResult cuDeviceGetCount(int* count) {
  ENTER(enter("cuDeviceGetCount"));
  *count = 2;
  return 0;
}

CuResult cuDeviceGet(CuDevice* found, int index) {
  ENTER(enter("cuDeviceGet"));
  if (index < 0 || index > 1) return cuda::kCuInvalidDevice;
  *found = index;
  return 0;
}

CuResult cuDeviceGetName(char* name, int bytes, CuDevice) {
  ENTER(enter("cuDeviceGetName"));
  std::snprintf(name, static_cast<std::size_t>(bytes), "Host Executor GPU");
  return 0;
}

CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice which) {
  ENTER(enter("cuDeviceGetUuid_v2"));
  for (unsigned i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<unsigned char>(16 * i + static_cast<unsigned>(which));
  }
  return 0;
}

CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  ENTER(enter("cuDeviceGetAttribute"));
  const char* given = std::getenv("FAKE_CUDA_COMPUTE");
  const int compute = given == nullptr ? 90 : std::atoi(given);
  switch (attribute) {
    case cuda::kCuMultiprocessors:
      *value = 2;
      return 0;
    case cuda::kCuComputeMajor:
      *value = compute / 10;
      return 0;
    case cuda::kCuComputeMinor:
      *value = compute % 10;
      return 0;
    case cuda::kCuSharedBytesOptin:
      *value = kSharedOptin;
      return 0;
    case cuda::kCuCanMapMemory:
      *value = std::getenv("FAKE_CUDA_NO_MAPS") == nullptr ? 1 : 0;
      return 0;
    default:
      return cuda::kCuInvalidValue;
  }
}

CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  ENTER(enter("cuDevicePrimaryCtxRetain"));
  ENTER(take(kContextBytes));
  Device& on = device();
  if (on.contexts++ == 0) {
    on.executor.emplace(plimsoll::host_cuda::ExecutorOptions{
        .seed = kSeed, .resident = 1, .spin_deadline = kSpinDeadline});
  }
  *context = reinterpret_cast<CuContext>(&on);
  return 0;
}

CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) {
  ENTER(enter("cuDevicePrimaryCtxRelease_v2"));
  Device& on = device();
  on.used -= kContextBytes;
  if (--on.contexts > 0) return 0;
  on.sticky = 0;
  on.queue.clear();
  on.graphs.clear();
  on.functions.clear();
  on.executor.reset();
  return 0;
}

CuResult cuCtxSetCurrent(CuContext context) {
  ENTER(enter("cuCtxSetCurrent"));
  has_context = context != nullptr;
  return 0;
}

// Kernels are found by name, in whatever module.
CuResult cuModuleLoadData(CuModule* module, const void* image) {
  ENTER(enter_context("cuModuleLoadData"));
  if (image == nullptr) return cuda::kCuInvalidValue;
  *module = reinterpret_cast<CuModule>(&device());
  return 0;
}

CuResult cuModuleUnload(CuModule) { return enter_context("cuModuleUnload"); }

CuResult cuModuleGetFunction(CuFunction* function, CuModule, const char* name) {
  ENTER(enter_context("cuModuleGetFunction"));
  for (std::size_t i = 0; i < cuda::kKernelCount; ++i) {
    if (std::string_view(cuda::kKernelNames[i]) != name) continue;
    device().functions.push_back(
        std::make_unique<Function>(Function{static_cast<cuda::Kernel>(i)}));
    *function = reinterpret_cast<CuFunction>(device().functions.back().get());
    return 0;
  }
  return cuda::kCuNotFound;
}

CuResult cuFuncGetAttribute(int* value, int attribute, CuFunction) {
  ENTER(enter_context("cuFuncGetAttribute"));
  if (attribute != cuda::kCuFunctionSharedBytes) return cuda::kCuInvalidValue;
  *value = 1024;
  return 0;
}

CuResult cuFuncSetAttribute(CuFunction function, int attribute, int value) {
  ENTER(enter_context("cuFuncSetAttribute"));
  if (attribute != cuda::kCuFunctionDynamicShared || value > kSharedOptin - 1024) {
    return cuda::kCuInvalidValue;
  }
  reinterpret_cast<Function*>(function)->dynamic_max = value;
  return 0;
}

CuResult cuLaunchKernel(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CuStream, void** parameters, void**) {
  ENTER(enter_context("cuLaunchKernel", true));
  const auto* called = reinterpret_cast<const Function*>(function);
  const cuda::LaunchShape shape{.grid = {grid_x, grid_y, grid_z},
                                .block = {block_x, block_y, block_z},
                                .shared_bytes = shared_bytes};
  const bool fits = grid_x > 0 && grid_y > 0 && grid_z > 0 && grid_y <= kGridMax &&
                    grid_z <= kGridMax && block_x > 0 && block_x * block_y * block_z <= kBlockMax &&
                    shared_bytes <= static_cast<unsigned>(called->dynamic_max);
  if (!fits) return cuda::kCuInvalidValue;
  const cuda::Kernel kernel = called->kernel;
  std::vector<std::byte> arguments(kArgumentBytes[static_cast<std::size_t>(kernel)]);
  std::memcpy(arguments.data(), parameters[0], arguments.size());
  enqueue([kernel, shape, arguments] {
    const plimsoll::Status ran =
        device().executor->run(cuda::host_grid(kernel, shape, arguments.data()));
    if (ran) return CuResult{0};
    device().why = ran.error().message;
    return kLaunchFailed;
  });
  return 0;
}

CuResult cuStreamCreate(CuStream* stream, unsigned) {
  ENTER(enter_context("cuStreamCreate"));
  *stream = reinterpret_cast<CuStream>(&device());
  return 0;
}

CuResult cuStreamDestroy_v2(CuStream) { return enter_context("cuStreamDestroy_v2"); }

CuResult cuStreamSynchronize(CuStream) {
  ENTER(enter_context("cuStreamSynchronize"));
  Device& on = device();
  protect(PROT_READ | PROT_WRITE);
  for (const Work& work : on.queue) {
    if (on.sticky == 0) on.sticky = work();
  }
  protect(PROT_NONE);
  on.queue.clear();
  return on.sticky;
}

CuResult cuStreamBeginCapture_v2(CuStream, int) {
  ENTER(enter_context("cuStreamBeginCapture_v2"));
  device().graphs.push_back(std::make_unique<std::vector<Work>>());
  device().is_capturing = true;
  return 0;
}

CuResult cuStreamEndCapture(CuStream, CuGraph* graph) {
  device().is_capturing = false;  // whatever comes of it
  ENTER(enter_context("cuStreamEndCapture"));
  *graph = reinterpret_cast<CuGraph>(device().graphs.back().get());
  return 0;
}

CuResult cuGraphInstantiateWithFlags(CuGraphExec* made, CuGraph graph, unsigned long long) {
  ENTER(enter_context("cuGraphInstantiateWithFlags"));
  *made = reinterpret_cast<CuGraphExec>(graph);
  return 0;
}

CuResult cuGraphUpload(CuGraphExec, CuStream) { return enter_context("cuGraphUpload"); }

CuResult cuGraphLaunch(CuGraphExec graph, CuStream) {
  ENTER(enter_context("cuGraphLaunch"));
  for (const Work& work : *reinterpret_cast<std::vector<Work>*>(graph)) enqueue(work);
  return 0;
}

CuResult cuGraphDestroy(CuGraph) { return enter_context("cuGraphDestroy"); }
CuResult cuGraphExecDestroy(CuGraphExec graph) {
  ENTER(enter_context("cuGraphExecDestroy"));
  std::erase_if(device().graphs, [&](const auto& made) {
    return made.get() == reinterpret_cast<std::vector<Work>*>(graph);
  });
  return 0;
}

}  // extern "C"

}  // namespace fake_cuda
