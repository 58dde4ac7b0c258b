// A library with the functions of NVML that shared/machine/nvml_api.h names: the two GPUs of
// cuda_driver.cc beside it, nobody's but ours.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shared/machine/nvml_api.h"

using plimsoll::NvmlHandle;
using plimsoll::NvmlMemory;
using plimsoll::NvmlProcess;
using plimsoll::NvmlReturn;

namespace {

constexpr NvmlReturn kInvalidArgument = 2;
constexpr unsigned kGpus = 2;
constexpr std::uint64_t kMemoryDefault = std::uint64_t{1} << 30;

// Handles are 1 and 2.
unsigned index_of(NvmlHandle handle) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(handle)) - 1;
}

}  // namespace

extern "C" {

#define EXPORT __attribute__((visibility("default")))

EXPORT NvmlReturn nvmlInit_v2() { return 0; }
EXPORT NvmlReturn nvmlShutdown() { return 0; }
EXPORT const char* nvmlErrorString(NvmlReturn) { return "as injected"; }

EXPORT NvmlReturn nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlHandle* handle) {
  if (index >= kGpus) return kInvalidArgument;
  *handle = reinterpret_cast<NvmlHandle>(std::uintptr_t{index} + 1);  // NOLINT
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetName(NvmlHandle, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "Host Executor GPU");
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetUUID(NvmlHandle handle, char* uuid, unsigned bytes) {
  std::string text = "GPU-";
  for (unsigned i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", 16 * i + index_of(handle));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  std::snprintf(uuid, bytes, "%s", text.c_str());
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetMemoryInfo(NvmlHandle, NvmlMemory* memory) {
  const char* given = std::getenv("FAKE_CUDA_MEMORY");
  memory->total = given == nullptr ? kMemoryDefault : std::stoull(given);
  memory->free = memory->total;
  memory->used = 0;
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetCudaComputeCapability(NvmlHandle, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetNumGpuCores(NvmlHandle, unsigned* cores) {
  *cores = 2 * 128;
  return 0;
}

EXPORT NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlHandle, unsigned* count,
                                                          NvmlProcess*) {
  *count = 0;
  return 0;
}

}  // extern "C"
