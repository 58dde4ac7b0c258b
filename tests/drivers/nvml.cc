// A library with the functions of NVML that shared/machine/nvml_api.h names: the two GPUs of
// cuda_driver.cc beside it, nobody's but ours.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "shared/machine/nvml_api.h"

using plimsoll::NvmlEventData;
using plimsoll::NvmlEventSet;
using plimsoll::NvmlHandle;
using plimsoll::NvmlMemory;
using plimsoll::NvmlProcess;
using plimsoll::NvmlReturn;

namespace {

constexpr NvmlReturn kInvalidArgument = 2;
constexpr unsigned kGpus = 2;
constexpr std::uint64_t kMemoryDefault = std::uint64_t{1} << 30;

// The file FAKE_NVML_XIDS: one line an event, "GPU XID". It is there when the set is made.
struct Events {
  int changes = -1;         // of inotify
  std::streamoff told = 0;  // so much of the file
};

bool next_event(Events& events, NvmlEventData* event) {
  if (events.changes < 0) return false;
  std::ifstream file(std::getenv("FAKE_NVML_XIDS"));
  file.seekg(0, std::ios::end);
  events.told = std::min<std::streamoff>(events.told, file.tellg());  // GPUs have been reset
  file.seekg(events.told);
  unsigned gpu = 0;
  std::uint64_t xid = 0;
  if (!(file >> gpu >> xid) || file.peek() != '\n') return false;  // a line that is not whole
  events.told = file.tellg();
  *event = {};
  event->device = reinterpret_cast<NvmlHandle>(std::uintptr_t{gpu} + 1);  // NOLINT
  event->type = plimsoll::kNvmlEventXid;
  event->data = xid;
  return true;
}

// Handles are 1 and 2.
unsigned index_of(NvmlHandle handle) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(handle)) - 1;
}

// As a driver whose GPU does not answer: for as long as the file FAKE_NVML_HANG is there.
void await_healthy() {
  constexpr int kLookEveryMs = 10;
  const char* path = std::getenv("FAKE_NVML_HANG");
  while (path != nullptr && access(path, F_OK) == 0) poll(nullptr, 0, kLookEveryMs);
}

// It has said so itself.
bool is_lost(unsigned gpu) {
  const char* path = std::getenv("FAKE_NVML_XIDS");
  if (path == nullptr) return false;
  std::ifstream file(path);
  unsigned index = 0;
  std::uint64_t xid = 0;
  while (file >> index >> xid) {
    if (index == gpu && xid == 79) return true;
  }
  return false;
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

EXPORT NvmlReturn nvmlDeviceGetHandleByUUID(const char* uuid, NvmlHandle* handle) {
  for (unsigned i = 0; i < kGpus; ++i) {
    char own[64];
    nvmlDeviceGetHandleByIndex_v2(i, handle);
    nvmlDeviceGetUUID(*handle, own, sizeof(own));
    if (std::string(own) == uuid) return 0;
  }
  return kInvalidArgument;
}

EXPORT NvmlReturn nvmlEventSetCreate(NvmlEventSet* set) {
  auto* events = new Events;
  if (const char* path = std::getenv("FAKE_NVML_XIDS")) {
    events->changes = inotify_init1(IN_CLOEXEC);
    inotify_add_watch(events->changes, path, IN_MODIFY);
  }
  *set = events;
  return 0;
}

EXPORT NvmlReturn nvmlEventSetFree(NvmlEventSet set) {
  auto* events = static_cast<Events*>(set);
  if (events->changes >= 0) close(events->changes);
  delete events;
  return 0;
}

EXPORT NvmlReturn nvmlDeviceRegisterEvents(NvmlHandle, std::uint64_t, NvmlEventSet) { return 0; }

// As NVIDIA's it comes back with the first event, or when the time is over.
EXPORT NvmlReturn nvmlEventSetWait_v2(NvmlEventSet set, NvmlEventData* event, unsigned longest) {
  Events& events = *static_cast<Events*>(set);
  if (next_event(events, event)) return 0;
  pollfd change{events.changes, POLLIN, 0};
  if (poll(&change, 1, static_cast<int>(longest)) != 1) return plimsoll::kNvmlTimeout;
  char said[4096];
  if (read(events.changes, said, sizeof(said)) < 0) return plimsoll::kNvmlTimeout;
  return next_event(events, event) ? 0 : plimsoll::kNvmlTimeout;
}

EXPORT NvmlReturn nvmlDeviceGetMemoryInfo(NvmlHandle handle, NvmlMemory* memory) {
  await_healthy();
  if (is_lost(index_of(handle))) return plimsoll::kNvmlGpuIsLost;
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
