// The part of cuda_driver.cc that gives, maps and copies memory.
#include <cstdlib>

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
  *memory = device().next_memory++;
  device().created[*memory] = {bytes, false};
  return 0;
}

CuResult cuMemRelease(CuMemory memory) {
  ENTER(enter_context("cuMemRelease"));
  const auto found = device().created.find(memory);
  if (found == device().created.end()) return kInvalidHandle;
  if (!found->second.is_mapped) device().used -= found->second.bytes;
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
    device().mapped[begin] = bytes;
    created->second.is_mapped = true;
    return 0;
  }
  return cuda::kCuInvalidValue;
}

CuResult cuMemUnmap(CuPointer begin, std::size_t bytes) {
  ENTER(enter_context("cuMemUnmap"));
  const auto found = device().mapped.find(begin);
  if (found == device().mapped.end() || found->second != bytes) return cuda::kCuInvalidValue;
  device().used -= bytes;
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
