#include "shared/base/shared_block.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace plimsoll {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Reserving more than there is wakes the kernel's out-of-memory killer, which finds no owner of
// shared memory and kills whoever else is there: so it is asked before, not told by ENOSPC.
Bytes memory_available() {
  std::ifstream facts("/proc/meminfo");
  std::string key;
  Bytes kibibytes = 0;
  std::string unit;
  while (facts >> key >> kibibytes >> unit) {
    if (key == "MemAvailable:") return kibibytes * kKiB;
  }
  return 0;
}

Error system_error(Code code, std::string_view what, int error) {
  return {code, fmt::format("{}: {}", what, std::strerror(error))};
}

}  // namespace

Result<SharedBlock> SharedBlock::create(const std::string& name, Bytes bytes) {
  if (bytes <= 0) {
    return invalid(fmt::format("create shared memory {}: size {} is not positive", name, bytes));
  }
  const std::string what =
      fmt::format("create {} of shared memory ({})", format_bytes(bytes), name);
  if (const Bytes available = memory_available(); bytes > available) {
    return does_not_fit(
        fmt::format("{}: only {} of memory is available", what, format_bytes(available)));
  }
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error(Code::unavailable, what, errno);
  // Also sets the size. Reserves every page, so that writing to one cannot fail later.
  int failed = 0;
  do {
    failed = ::fallocate(fd.get(), 0, 0, bytes) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == ENOSPC || failed == ENOMEM || failed == EFBIG) {
    return system_error(Code::does_not_fit, what, failed);
  }
  if (failed != 0) return system_error(Code::unavailable, what, failed);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return system_error(Code::internal, what + ": seal its size", errno);
  }
  return TRY_CONTEXT(what + ": ", map_bytes(std::move(fd), bytes));
}

Result<SharedBlock> SharedBlock::map(UniqueFd fd, Bytes bytes_min) {
  const std::string what = fmt::format("map shared memory (descriptor {})", fd.get());
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error(Code::invalid, what, errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return invalid(what + ": not memory of ours: it is not a memfd whose size is sealed");
  }
  if (status.st_size < bytes_min || status.st_size == 0) {
    return invalid(
        fmt::format("{}: it has {} bytes, needed are {}", what, status.st_size, bytes_min));
  }
  return TRY_CONTEXT(what + ": ", map_bytes(std::move(fd), status.st_size));
}

Result<SharedBlock> SharedBlock::map_bytes(UniqueFd fd, Bytes bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error(Code::unavailable, "mmap", errno);
  SharedBlock block(std::move(fd), {static_cast<std::byte*>(memory), size});
  if (::madvise(memory, size, MADV_DONTDUMP) != 0) {
    return system_error(Code::internal, "keep it out of core dumps", errno);
  }
  return block;
}

SharedBlock::SharedBlock(SharedBlock&& other) noexcept
    : fd_(std::move(other.fd_)), memory_(std::exchange(other.memory_, {})) {}

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(memory_, other.memory_);
  return *this;
}

SharedBlock::~SharedBlock() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace plimsoll
