#include "kernels/cuda/driver_api.h"

#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

#if !defined(__SANITIZE_THREAD__)
#include "tests/kernels/cuda/driver_library.h"
#endif

namespace plimsoll::cuda {
namespace {

TEST(DriverApi, AMachineWithoutTheDriverIsToldWhatToDo) {
  const auto opened = DriverLibrary::open("libno-such-library.so.9");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::not_found);
  EXPECT_NE(opened.error().message.find("libno-such-library.so.9"), std::string::npos);
  EXPECT_NE(opened.error().message.find("--devices cpu"), std::string::npos);
}

TEST(DriverApi, ALibraryOfAnotherKindIsRefused) {
  const auto opened = DriverLibrary::open("libm.so.6");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::invalid);
  EXPECT_NE(opened.error().message.find("it has no function cu"), std::string::npos);
}

#if !defined(__SANITIZE_THREAD__)
TEST(DriverApi, ADriverThatIsTooOldIsNamedWithItsVersion) {
  const ScopedVariable old("FAKE_CUDA_VERSION", "12080");
  const auto opened = DriverLibrary::open(kTestDriver);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::invalid);
  EXPECT_NE(opened.error().message.find("it is for CUDA 12.8 and this build needs 13.0"),
            std::string::npos)
      << opened.error().message;
}

TEST(DriverApi, ADriverThatDoesNotStartSaysWhy) {
  const TestDriver driver;
  driver.fail("cuInit", kCuNoDevice);
  const auto opened = DriverLibrary::open(kTestDriver);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::unavailable);
  EXPECT_NE(opened.error().message.find("error 100 (as injected)"), std::string::npos);
}

TEST(DriverApi, AnErrorWithoutANameHasItsNumber) {
  const auto opened = DriverLibrary::open(kTestDriver);
  ASSERT_TRUE(opened) << opened.error().message;
  const Status failed = opened->check(12345, "do it");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "do it: error 12345 (as injected)");
  EXPECT_EQ(opened->check(kCuOutOfMemory, "do it").error().code, Code::does_not_fit);
  EXPECT_EQ(opened->check(kCuUnsupportedPtx, "do it").error().code, Code::invalid);
  EXPECT_EQ(opened->check(kCuIllegalAddress, "do it").error().code, Code::internal);
  EXPECT_TRUE(opened->check(kCuSuccess, "do it"));
}
#endif

#if __has_include(<cuda.h>)
// What a parameter is to the calling convention.
template <typename T>
struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <typename T>
struct Plain<T*> {  // and where it points to, which the structs below are compared for
  using Type = void*;
};
template <typename T>
using PlainType = typename Plain<T>::Type;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename... Ours, typename... Theirs>
struct SameCall<CuResult (*)(Ours...), CUresult(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return (std::is_same_v<PlainType<Ours>, PlainType<Theirs>> && ...);
    }
    return false;
  }();
};

#define STRING_OF(text) #text
// What the header's macros make of a name without its version.
#define SYMBOL_OF(name) STRING_OF(name)

TEST(DriverApi, DeclarationsAreThoseOfTheToolkit) {
  const DriverApi ours;
#define EXPECT_CALL(member, name, symbol)                                                         \
  EXPECT_STREQ(SYMBOL_OF(name), symbol);                                                          \
  EXPECT_TRUE((SameCall<decltype(ours.member), std::remove_pointer_t<decltype(&(name))>>::value)) \
      << symbol
  EXPECT_CALL(init, cuInit, "cuInit");
  EXPECT_CALL(driver_version, cuDriverGetVersion, "cuDriverGetVersion");
  EXPECT_CALL(error_name, cuGetErrorName, "cuGetErrorName");
  EXPECT_CALL(error_text, cuGetErrorString, "cuGetErrorString");
  EXPECT_CALL(device_count, cuDeviceGetCount, "cuDeviceGetCount");
  EXPECT_CALL(device_at, cuDeviceGet, "cuDeviceGet");
  EXPECT_CALL(device_name, cuDeviceGetName, "cuDeviceGetName");
  EXPECT_CALL(device_uuid, cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  EXPECT_CALL(device_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute");
  EXPECT_CALL(retain_context, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  EXPECT_CALL(release_context, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  EXPECT_CALL(set_context, cuCtxSetCurrent, "cuCtxSetCurrent");
  EXPECT_CALL(load_module, cuModuleLoadData, "cuModuleLoadData");
  EXPECT_CALL(unload_module, cuModuleUnload, "cuModuleUnload");
  EXPECT_CALL(find_function, cuModuleGetFunction, "cuModuleGetFunction");
  EXPECT_CALL(function_attribute, cuFuncGetAttribute, "cuFuncGetAttribute");
  EXPECT_CALL(set_function_attribute, cuFuncSetAttribute, "cuFuncSetAttribute");
  EXPECT_CALL(launch, cuLaunchKernel, "cuLaunchKernel");
  EXPECT_CALL(memory_info, cuMemGetInfo, "cuMemGetInfo_v2");
  EXPECT_CALL(allocate, cuMemAlloc, "cuMemAlloc_v2");
  EXPECT_CALL(free, cuMemFree, "cuMemFree_v2");
  EXPECT_CALL(allocate_host, cuMemHostAlloc, "cuMemHostAlloc");
  EXPECT_CALL(free_host, cuMemFreeHost, "cuMemFreeHost");
  EXPECT_CALL(copy_in, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  EXPECT_CALL(copy_out, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  EXPECT_CALL(fill, cuMemsetD8Async, "cuMemsetD8Async");
  EXPECT_CALL(create_stream, cuStreamCreate, "cuStreamCreate");
  EXPECT_CALL(destroy_stream, cuStreamDestroy, "cuStreamDestroy_v2");
  EXPECT_CALL(wait_stream, cuStreamSynchronize, "cuStreamSynchronize");
  EXPECT_CALL(reserve, cuMemAddressReserve, "cuMemAddressReserve");
  EXPECT_CALL(free_reserved, cuMemAddressFree, "cuMemAddressFree");
  EXPECT_CALL(create_memory, cuMemCreate, "cuMemCreate");
  EXPECT_CALL(release_memory, cuMemRelease, "cuMemRelease");
  EXPECT_CALL(map, cuMemMap, "cuMemMap");
  EXPECT_CALL(unmap, cuMemUnmap, "cuMemUnmap");
  EXPECT_CALL(set_access, cuMemSetAccess, "cuMemSetAccess");
  EXPECT_CALL(granularity, cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  EXPECT_CALL(begin_capture, cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  EXPECT_CALL(end_capture, cuStreamEndCapture, "cuStreamEndCapture");
  EXPECT_CALL(instantiate, cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  EXPECT_CALL(upload_graph, cuGraphUpload, "cuGraphUpload");
  EXPECT_CALL(launch_graph, cuGraphLaunch, "cuGraphLaunch");
  EXPECT_CALL(destroy_graph, cuGraphDestroy, "cuGraphDestroy");
  EXPECT_CALL(destroy_graph_exec, cuGraphExecDestroy, "cuGraphExecDestroy");
#undef EXPECT_CALL
}

TEST(DriverApi, StructsAndConstantsAreThoseOfTheToolkit) {
  EXPECT_EQ(sizeof(CuUuid), sizeof(CUuuid));
  EXPECT_EQ(sizeof(CuAllocationProperties), sizeof(CUmemAllocationProp));
  EXPECT_EQ(offsetof(CuAllocationProperties, location), offsetof(CUmemAllocationProp, location));
  EXPECT_EQ(offsetof(CuAllocationProperties, compression),
            offsetof(CUmemAllocationProp, allocFlags));
  EXPECT_EQ(sizeof(CuAccess), sizeof(CUmemAccessDesc));
  EXPECT_EQ(offsetof(CuAccess, flags), offsetof(CUmemAccessDesc, flags));
  EXPECT_EQ(kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kCuNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(kCuStubLibrary, CUDA_ERROR_STUB_LIBRARY);
  EXPECT_EQ(kCuDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(kCuNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(kCuInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(kCuNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(kCuUnsupportedPtx, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(kCuNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(kCuSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(kCuSystemMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(kCuComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(kCuComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(kCuSharedBytesOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(kCuCanMapMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  EXPECT_EQ(kCuMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(kCuFunctionSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  EXPECT_EQ(kCuFunctionDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(kCuCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(kCuAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(kCuLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(kCuReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(kCuGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}
#endif

}  // namespace
}  // namespace plimsoll::cuda
