// DriverApi: the functions of NVIDIA's driver library that we call, declared here, since a machine
// that builds without nvcc has no cuda.h; where there is one, a test compares the two.
//
// The library is opened at run time and never linked: the same programs run on machines without
// it. Handles are the driver's pointers; names in the table are its symbols, versions included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shared/base/result.h"

namespace plimsoll::cuda {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;  // of device memory
using CuContext = struct CUctx_st*;
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuStream = struct CUstream_st*;
using CuGraph = struct CUgraph_st*;
using CuGraphExec = struct CUgraphExec_st*;
using CuMemory = unsigned long long;  // physical memory, to be mapped

struct CuUuid {
  unsigned char bytes[16];
};
struct CuLocation {
  int type;
  int id;
};
struct CuAllocationProperties {
  int type;
  int handle_types;
  CuLocation location;
  void* windows_only;
  unsigned char compression, gpu_direct;
  unsigned short usage;
  unsigned char reserved[4];
};
struct CuAccess {
  CuLocation location;
  int flags;
};
static_assert(sizeof(CuAllocationProperties) == 32 && sizeof(CuAccess) == 12);

constexpr CuResult kCuSuccess = 0;
constexpr CuResult kCuInvalidValue = 1;
constexpr CuResult kCuOutOfMemory = 2;
constexpr CuResult kCuNotInitialized = 3;
constexpr CuResult kCuStubLibrary = 34;
constexpr CuResult kCuDeviceUnavailable = 46;
constexpr CuResult kCuNoDevice = 100;
constexpr CuResult kCuInvalidDevice = 101;
constexpr CuResult kCuNoBinaryForGpu = 209;
constexpr CuResult kCuUnsupportedPtx = 222;
constexpr CuResult kCuPeerUnsupported = 217;
constexpr CuResult kCuNotFound = 500;
constexpr CuResult kCuIllegalAddress = 700;
constexpr CuResult kCuSystemNotReady = 802;
constexpr CuResult kCuSystemMismatch = 803;

constexpr int kCuMultiprocessors = 16;
constexpr int kCuComputeMajor = 75;
constexpr int kCuComputeMinor = 76;
constexpr int kCuSharedBytesOptin = 97;
constexpr int kCuCanMapMemory = 102;
constexpr int kCuFunctionSharedBytes = 1;
constexpr int kCuFunctionDynamicShared = 8;
constexpr unsigned kCuStreamNonBlocking = 1;
constexpr int kCuCaptureThreadLocal = 1;
constexpr int kCuAllocationPinned = 1;
constexpr int kCuHandleDescriptor = 1;  // POSIX
constexpr unsigned kCuHostMapped = 2;
constexpr int kCuLocationDevice = 1;
constexpr int kCuReadWrite = 3;
constexpr int kCuGranularityMinimum = 0;

// X(member, symbol, parameters): each returns a CuResult.
// clang-format off
#define PLIMSOLL_DRIVER_FUNCTIONS(X)                                                            \
  X(init, cuInit, (unsigned flags))                                                             \
  X(driver_version, cuDriverGetVersion, (int* version))                                         \
  X(error_name, cuGetErrorName, (CuResult, const char** name))                                  \
  X(error_text, cuGetErrorString, (CuResult, const char** text))                                \
  X(device_count, cuDeviceGetCount, (int* count))                                               \
  X(device_at, cuDeviceGet, (CuDevice*, int index))                                             \
  X(device_name, cuDeviceGetName, (char* name, int bytes, CuDevice))                            \
  X(device_uuid, cuDeviceGetUuid_v2, (CuUuid*, CuDevice))                                       \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, CuDevice))              \
  X(retain_context, cuDevicePrimaryCtxRetain, (CuContext*, CuDevice))                           \
  X(release_context, cuDevicePrimaryCtxRelease_v2, (CuDevice))                                  \
  X(set_context, cuCtxSetCurrent, (CuContext))                                                  \
  X(load_module, cuModuleLoadData, (CuModule*, const void* image))                              \
  X(unload_module, cuModuleUnload, (CuModule))                                                  \
  X(find_function, cuModuleGetFunction, (CuFunction*, CuModule, const char* name))              \
  X(function_attribute, cuFuncGetAttribute, (int* value, int attribute, CuFunction))            \
  X(set_function_attribute, cuFuncSetAttribute, (CuFunction, int attribute, int value))         \
  X(launch, cuLaunchKernel, (CuFunction, unsigned grid_x, unsigned grid_y, unsigned grid_z,     \
                             unsigned block_x, unsigned block_y, unsigned block_z,              \
                             unsigned shared_bytes, CuStream, void** parameters, void** extra)) \
  X(memory_info, cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                      \
  X(allocate, cuMemAlloc_v2, (CuPointer*, std::size_t bytes))                                   \
  X(free, cuMemFree_v2, (CuPointer))                                                            \
  X(allocate_host, cuMemHostAlloc, (void**, std::size_t bytes, unsigned flags))                 \
  X(free_host, cuMemFreeHost, (void*))                                                          \
  X(copy_in, cuMemcpyHtoDAsync_v2, (CuPointer, const void*, std::size_t bytes, CuStream))       \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void*, CuPointer, std::size_t bytes, CuStream))            \
  X(fill, cuMemsetD8Async, (CuPointer, unsigned char, std::size_t bytes, CuStream))             \
  X(create_stream, cuStreamCreate, (CuStream*, unsigned flags))                                 \
  X(destroy_stream, cuStreamDestroy_v2, (CuStream))                                             \
  X(wait_stream, cuStreamSynchronize, (CuStream))                                               \
  X(reserve, cuMemAddressReserve, (CuPointer*, std::size_t bytes, std::size_t alignment,        \
                                   CuPointer wanted, unsigned long long flags))                 \
  X(free_reserved, cuMemAddressFree, (CuPointer, std::size_t bytes))                            \
  X(create_memory, cuMemCreate, (CuMemory*, std::size_t bytes, const CuAllocationProperties*,   \
                                 unsigned long long flags))                                     \
  X(release_memory, cuMemRelease, (CuMemory))                                                   \
  X(map, cuMemMap, (CuPointer, std::size_t bytes, std::size_t offset, CuMemory,                 \
                    unsigned long long flags))                                                  \
  X(unmap, cuMemUnmap, (CuPointer, std::size_t bytes))                                          \
  X(set_access, cuMemSetAccess, (CuPointer, std::size_t bytes, const CuAccess*,                 \
                                 std::size_t count))                                            \
  X(granularity, cuMemGetAllocationGranularity, (std::size_t*, const CuAllocationProperties*,   \
                                                 int option))                                   \
  X(export_memory, cuMemExportToShareableHandle, (void* handle, CuMemory, int type,             \
                                                  unsigned long long flags))                    \
  X(import_memory, cuMemImportFromShareableHandle, (CuMemory*, void* handle, int type))         \
  X(register_host, cuMemHostRegister_v2, (void*, std::size_t bytes, unsigned flags))            \
  X(unregister_host, cuMemHostUnregister, (void*))                                              \
  X(host_address, cuMemHostGetDevicePointer_v2, (CuPointer*, void*, unsigned flags))            \
  X(begin_capture, cuStreamBeginCapture_v2, (CuStream, int mode))                               \
  X(end_capture, cuStreamEndCapture, (CuStream, CuGraph*))                                      \
  X(instantiate, cuGraphInstantiateWithFlags, (CuGraphExec*, CuGraph, unsigned long long flags))\
  X(upload_graph, cuGraphUpload, (CuGraphExec, CuStream))                                       \
  X(launch_graph, cuGraphLaunch, (CuGraphExec, CuStream))                                       \
  X(destroy_graph, cuGraphDestroy, (CuGraph))                                                   \
  X(destroy_graph_exec, cuGraphExecDestroy, (CuGraphExec))
// clang-format on

struct DriverApi {
#define PLIMSOLL_ROW(member, symbol, parameters) CuResult(*member) parameters = nullptr;
  PLIMSOLL_DRIVER_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};

// The library, opened and initialised; closed at destruction.
class DriverLibrary {
 public:
  // Errors: there is no such library (not_found); it lacks a function or is older than CUDA 13
  // (invalid); it does not start.
  static Result<DriverLibrary> open(const std::string& file_name);
  DriverLibrary(DriverLibrary&& other) noexcept;
  DriverLibrary& operator=(DriverLibrary&&) = delete;
  DriverLibrary(const DriverLibrary&) = delete;
  ~DriverLibrary();

  const DriverApi& api() const { return api_; }
  // "allocate 2 GiB for weights: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; its code says whether
  // less memory, another device or another build would help.
  Status check(CuResult result, const std::string& attempted) const;

 private:
  DriverLibrary() = default;
  Status start(const std::string& file_name);

  void* handle_ = nullptr;
  DriverApi api_;
};

}  // namespace plimsoll::cuda
