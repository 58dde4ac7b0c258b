#include "kernels/cuda/host/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#if PLIMSOLL_FIBRES_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace plimsoll::host_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStaticMax = 48 * 1024;
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kGap = 32;  // between declarations
constexpr std::size_t kCanaryBytes = 64;
constexpr unsigned char kCanary = 0xa5;
constexpr unsigned char kUnset = 0xff;  // a NaN in every float type

constexpr std::size_t up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Sanitizers watch memset; what the executor does is none of their business.
void fill(void* memory, unsigned char value, std::size_t bytes) {
  asm volatile("rep stosb" : "+D"(memory), "+c"(bytes) : "a"(value) : "memory");
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : map_(std::exchange(other.map_, nullptr)), map_bytes_(other.map_bytes_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  return *this;
}

SharedMemory::~SharedMemory() { unmap(); }

void SharedMemory::unmap() {
  if (map_ == nullptr) return;
#if PLIMSOLL_FIBRES_ASAN
  __asan_unpoison_memory_region(map_, map_bytes_);  // whoever is given these addresses next
#endif
  ::munmap(map_, map_bytes_);
  map_ = nullptr;
}

Status SharedMemory::prepare(std::size_t dynamic_bytes) {
  const std::size_t padded = up(dynamic_bytes, kAlignment);
  const std::size_t usable = up(kStaticMax + kCanaryBytes + padded, kPage);
#if PLIMSOLL_FIBRES_TSAN
  const bool again = false;  // other threads' accesses to the same bytes would look like races
#else
  const bool again = map_ != nullptr && map_bytes_ == usable + kPage;
#endif
  if (!again) {
    unmap();
    map_bytes_ = usable + kPage;
    void* map =
        ::mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
      map_ = nullptr;
      return Error{Code::does_not_fit,
                   std::string("map a block's shared memory on the CPU: ") + std::strerror(errno)};
    }
    map_ = static_cast<std::byte*>(map);
    if (::mprotect(map_ + usable, kPage, PROT_NONE) != 0) {
      return internal_error(std::string("protect the end of shared memory: ") +
                            std::strerror(errno));
    }
  }
#if PLIMSOLL_FIBRES_ASAN
  __asan_unpoison_memory_region(map_, usable);
#endif
  dynamic_bytes_ = dynamic_bytes;
  dynamic_ = map_ + usable - padded;
  static_bytes_ = 0;
  declarations_ = 0;
  fill(dynamic_ - kCanaryBytes, kCanary, kCanaryBytes);
  fill(dynamic_, kUnset, dynamic_bytes);
  fill(dynamic_ + dynamic_bytes, kCanary, padded - dynamic_bytes);
#if PLIMSOLL_FIBRES_ASAN
  __asan_poison_memory_region(map_, usable);
  __asan_unpoison_memory_region(dynamic_, dynamic_bytes);
#endif
  return {};
}

void* SharedMemory::declared(std::size_t bytes, const char* file, int line) {
  for (std::size_t i = 0; i < declarations_; ++i) {
    if (declared_[i].line == line && declared_[i].file == file) return declared_[i].memory;
  }
  if (declarations_ == declared_.size() || static_bytes_ + bytes + kGap > kStaticMax) {
    return nullptr;
  }
  std::byte* memory = map_ + static_bytes_ + kAlignment;
  static_bytes_ += up(bytes, kAlignment) + kGap;
  fill(memory, kUnset, bytes);
#if PLIMSOLL_FIBRES_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
  declared_[declarations_++] = {file, line, memory};
  return memory;
}

bool SharedMemory::is_overrun() const {
#if !PLIMSOLL_FIBRES_ASAN
  const auto is_touched = [](const std::byte& at) { return at != std::byte{kCanary}; };
  for (std::size_t i = 1; i <= kCanaryBytes; ++i) {
    if (is_touched(*(dynamic_ - i))) return true;
  }
  for (std::size_t i = dynamic_bytes_; i < up(dynamic_bytes_, kAlignment); ++i) {
    if (is_touched(dynamic_[i])) return true;
  }
#endif
  return false;
}

}  // namespace plimsoll::host_cuda
