// The part of cuda_driver.cc that gives, maps and copies memory.
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/drivers/fake_cuda.h"

namespace fake_cuda {

extern "C" {

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER(enter_context("cuMemGetInfo_v2"));
  *total = device().total;
  *free = device().total - device().used;
  return 0;
}

CuResult cuMemAlloc_v2(CuPointer* memory, std::size_t bytes) {
  ENTER(enter_context("cuMemAlloc_v2"));
  ENTER(take(rounded(bytes)));
  *memory = map_addresses(rounded(bytes));
  if (*memory == 0) return cuda::kCuOutOfMemory;
  device().allocations[*memory] = rounded(bytes);
  // As the driver gives it: not zeroed.
  protect(PROT_READ | PROT_WRITE);
  std::memset(address(*memory), 0xa5, bytes);
  protect(PROT_NONE);
  return 0;
}

CuResult cuMemFree_v2(CuPointer memory) {
  ENTER(enter_context("cuMemFree_v2"));
  const auto found = device().allocations.find(memory);
  if (found == device().allocations.end()) return cuda::kCuInvalidValue;
  ::munmap(address(memory), found->second);
  device().used -= found->second;
  device().allocations.erase(found);
  return 0;
}

CuResult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  ENTER(enter_context("cuMemHostAlloc"));
  *memory = std::malloc(bytes);  // NOLINT(cppcoreguidelines-no-malloc): freed by cuMemFreeHost
  return *memory == nullptr ? cuda::kCuOutOfMemory : 0;
}

CuResult cuMemFreeHost(void* memory) {
  ENTER(enter_context("cuMemFreeHost"));
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
  return 0;
}

CuResult cuMemcpyHtoDAsync_v2(CuPointer to, const void* from, std::size_t bytes, CuStream) {
  ENTER(enter_context("cuMemcpyHtoDAsync_v2", true));
  if (!is_there(to, bytes)) return cuda::kCuInvalidValue;
  enqueue([to, from, bytes] {
    std::memcpy(address(to), from, bytes);
    return CuResult{0};
  });
  return 0;
}

CuResult cuMemcpyDtoHAsync_v2(void* to, CuPointer from, std::size_t bytes, CuStream) {
  ENTER(enter_context("cuMemcpyDtoHAsync_v2", true));
  if (!is_there(from, bytes)) return cuda::kCuInvalidValue;
  enqueue([to, from, bytes] {
    std::memcpy(to, address(from), bytes);
    return CuResult{0};
  });
  return 0;
}

CuResult cuMemsetD8Async(CuPointer to, unsigned char value, std::size_t bytes, CuStream) {
  ENTER(enter_context("cuMemsetD8Async", true));
  if (!is_there(to, bytes)) return cuda::kCuInvalidValue;
  enqueue([to, value, bytes] {
    std::memset(address(to), value, bytes);
    return CuResult{0};
  });
  return 0;
}

CuResult cuMemAddressReserve(CuPointer* begin, std::size_t bytes, std::size_t, CuPointer,
                             unsigned long long) {
  ENTER(enter_context("cuMemAddressReserve"));
  if (bytes == 0 || bytes % kGranule != 0) return cuda::kCuInvalidValue;
  *begin = map_addresses(bytes);
  if (*begin == 0) return cuda::kCuOutOfMemory;
  device().reserved[*begin] = bytes;
  return 0;
}

CuResult cuMemAddressFree(CuPointer begin, std::size_t bytes) {
  ENTER(enter_context("cuMemAddressFree"));
  const auto found = device().reserved.find(begin);
  if (found == device().reserved.end() || found->second != bytes) return cuda::kCuInvalidValue;
  ::munmap(address(begin), bytes);
  device().reserved.erase(found);
  return 0;
}

CuResult cuMemCreate(CuMemory* memory, std::size_t bytes, const CuAllocationProperties* wanted,
                     unsigned long long) {
  ENTER(enter_context("cuMemCreate"));
  if (bytes == 0 || bytes % kGranule != 0 || wanted->type != cuda::kCuAllocationPinned ||
      wanted->location.type != cuda::kCuLocationDevice) {
    return cuda::kCuInvalidValue;
  }
  ENTER(take(bytes));
  Device::Created created{.bytes = bytes};
  if (wanted->handle_types == cuda::kCuHandleDescriptor) {
    created.descriptor = ::memfd_create("device memory", MFD_CLOEXEC);
    if (created.descriptor < 0 || ::ftruncate(created.descriptor, static_cast<off_t>(bytes)) != 0) {
      return cuda::kCuOutOfMemory;
    }
  }
  *memory = device().next_memory++;
  device().created[*memory] = created;
  return 0;
}

CuResult cuMemExportToShareableHandle(void* handle, CuMemory memory, int type, unsigned long long) {
  ENTER(enter_context("cuMemExportToShareableHandle"));
  const auto found = device().created.find(memory);
  if (found == device().created.end() || found->second.descriptor < 0 ||
      type != cuda::kCuHandleDescriptor) {
    return cuda::kCuInvalidValue;
  }
  *static_cast<int*>(handle) = ::fcntl(found->second.descriptor, F_DUPFD_CLOEXEC, 0);
  return 0;
}

CuResult cuMemImportFromShareableHandle(CuMemory* memory, void* handle, int type) {
  ENTER(enter_context("cuMemImportFromShareableHandle"));
  if (type != cuda::kCuHandleDescriptor) return cuda::kCuInvalidValue;
  const int own =
      ::fcntl(static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)), F_DUPFD_CLOEXEC, 0);
  struct stat facts {};
  if (own < 0 || ::fstat(own, &facts) != 0) return kInvalidHandle;
  *memory = device().next_memory++;
  device().created[*memory] = {.bytes = static_cast<std::size_t>(facts.st_size),
                               .is_mapped = false,
                               .descriptor = own,
                               .is_foreign = true};
  return 0;
}

CuResult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  ENTER(enter_context("cuMemHostRegister_v2"));
  const bool is_whole = reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0 && bytes > 0;
  return is_whole ? 0 : cuda::kCuInvalidValue;
}

CuResult cuMemHostUnregister(void*) { return enter_context("cuMemHostUnregister"); }

CuResult cuMemHostGetDevicePointer_v2(CuPointer* seen, void* memory, unsigned) {
  ENTER(enter_context("cuMemHostGetDevicePointer_v2"));
  *seen = reinterpret_cast<CuPointer>(memory);
  return 0;
}

CuResult cuMemRelease(CuMemory memory) {
  ENTER(enter_context("cuMemRelease"));
  const auto found = device().created.find(memory);
  if (found == device().created.end()) return kInvalidHandle;
  if (!found->second.is_mapped && !found->second.is_foreign) {
    device().used -= found->second.bytes;
  }
  if (found->second.descriptor >= 0) ::close(found->second.descriptor);
  device().created.erase(found);
  return 0;
}

CuResult cuMemMap(CuPointer begin, std::size_t bytes, std::size_t offset, CuMemory memory,
                  unsigned long long) {
  ENTER(enter_context("cuMemMap"));
  const auto created = device().created.find(memory);
  if (created == device().created.end() || offset != 0 || created->second.bytes != bytes) {
    return cuda::kCuInvalidValue;
  }
  for (const auto& [start, length] : device().reserved) {
    const bool is_inside = begin >= start && begin + bytes <= start + length;
    if (!is_inside || is_there(begin, bytes)) continue;
    const int shared = created->second.descriptor;
    if (shared >= 0 &&
        ::mmap(address(begin), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, shared, 0) == MAP_FAILED) {
      return cuda::kCuOutOfMemory;
    }
    device().mapped[begin] = bytes;
    if (created->second.is_foreign) device().foreign[begin] = bytes;
    created->second.is_mapped = true;
    return 0;
  }
  return cuda::kCuInvalidValue;
}

CuResult cuMemUnmap(CuPointer begin, std::size_t bytes) {
  ENTER(enter_context("cuMemUnmap"));
  const auto found = device().mapped.find(begin);
  if (found == device().mapped.end() || found->second != bytes) return cuda::kCuInvalidValue;
  if (device().foreign.erase(begin) == 0) device().used -= bytes;
  device().mapped.erase(found);
  return 0;
}

CuResult cuMemSetAccess(CuPointer begin, std::size_t bytes, const CuAccess* access, std::size_t) {
  ENTER(enter_context("cuMemSetAccess"));
  return is_there(begin, bytes) && access->flags == cuda::kCuReadWrite ? 0 : cuda::kCuInvalidValue;
}

CuResult cuMemGetAllocationGranularity(std::size_t* granule, const CuAllocationProperties*, int) {
  ENTER(enter_context("cuMemGetAllocationGranularity"));
  *granule = kGranule;
  return 0;
}

}  // extern "C"

}  // namespace fake_cuda
