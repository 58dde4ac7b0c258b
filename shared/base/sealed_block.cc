#include "shared/base/sealed_block.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "shared/base/check.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace plimsoll {
namespace {

constexpr Bytes kHugePage = 2 * kMiB;
constexpr Bytes kPage = 4 * kKiB;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kAllSeals = kSizeSeals | F_SEAL_WRITE | F_SEAL_SEAL;

using LabelPage = std::array<char, static_cast<std::size_t>(kPage)>;

std::size_t size(Bytes bytes) { return static_cast<std::size_t>(bytes); }
Bytes block_bytes(Bytes bytes) { return round_up(bytes, kPage) + kPage; }

Error system_error(Code code, std::string_view what) {
  return {code, fmt::format("{}: {}", what, std::strerror(errno))};
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_WRITE) != 0;
}

// An open description of its own, so that locks tell processes apart which inherited the same one.
Result<UniqueFd> open_again(int fd) {
  UniqueFd again(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!again) return system_error(Code::unavailable, "open a block of memory again");
  return again;
}

Result<bool> lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return system_error(Code::unavailable, "lock a block of memory");
}

}  // namespace

Result<UniqueFd> SealedBlock::create(const std::string& name, Bytes bytes) {
  CHECK(bytes > 0);
  const std::string what = fmt::format("make a block of {} ({})", format_bytes(bytes), name);
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), block_bytes(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return system_error(Code::unavailable, what);
  }
  return fd;
}

std::optional<std::string> SealedBlock::label_of(int fd) {
  struct stat status {};
  LabelPage page{};
  if (!plimsoll::is_sealed(fd) || ::fstat(fd, &status) != 0 || status.st_size < kPage ||
      ::pread(fd, page.data(), page.size(), status.st_size - kPage) != std::ssize(page)) {
    return std::nullopt;
  }
  page.back() = '\0';
  return std::string(page.data());
}

Result<std::optional<SealedBlock>> SealedBlock::open(int fd, Bytes bytes,
                                                     const std::string& label) {
  CHECK(bytes > 0 && std::ssize(label) < kPage);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error(Code::invalid, "look at a block of memory");
  if (status.st_size != block_bytes(bytes)) {
    return invalid(fmt::format("a block of memory has {} bytes; {} bytes of contents need {}",
                               status.st_size, bytes, block_bytes(bytes)));
  }
  SealedBlock block(TRY(open_again(fd)), label);
  TRY(block.reserve(bytes));
  if (!plimsoll::is_sealed(fd)) {
    if (!TRY(lock(block.fd_.get()))) return std::optional<SealedBlock>();
    // Who held the lock until now may have sealed it.
    if (!plimsoll::is_sealed(fd)) {
      TRY(block.empty());
      TRY(block.map(PROT_READ | PROT_WRITE, MAP_SHARED));
      TRY(block.have_huge_pages());
      return std::optional<SealedBlock>(std::move(block));
    }
  }
  if (const std::optional<std::string> found = label_of(fd); found != label) {
    return invalid(
        fmt::format("a block of memory has '{}' in it; wanted is '{}'", found.value_or(""), label));
  }
  TRY(block.map(PROT_READ, MAP_PRIVATE));
  block.is_sealed_ = true;
  return std::optional<SealedBlock>(std::move(block));
}

// Address space for the contents and what is needed to align them.
Status SealedBlock::reserve(Bytes bytes) {
  void* address = ::mmap(nullptr, size(round_up(bytes, kPage) + kHugePage), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return system_error(Code::does_not_fit,
                        fmt::format("reserve {} of address space", format_bytes(bytes)));
  }
  map_ = {static_cast<std::byte*>(address), size(round_up(bytes, kPage) + kHugePage)};
  const auto start = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(address));
  bytes_ = map_.subspan(size(round_up(start, kHugePage) - start), size(bytes));
  return {};
}

// Of what a writer left that died.
Status SealedBlock::empty() {
  const Bytes length = block_bytes(std::ssize(bytes_));
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, length) == 0) return {};
  return system_error(Code::unavailable, "empty a block of memory");
}

Status SealedBlock::map(int protection, int flags) {
  const std::size_t length = size(round_up(std::ssize(bytes_), kPage));
  if (::mmap(bytes_.data(), length, protection, flags | MAP_FIXED, fd_.get(), 0) == MAP_FAILED) {
    return system_error(Code::unavailable, "map a block of memory");
  }
  if (::madvise(bytes_.data(), length, MADV_DONTDUMP) != 0) {
    return system_error(Code::internal, "keep a block of memory out of core dumps");
  }
  return {};
}

// What is less than a huge page at the end stays in small ones. A page is asked for before its
// first byte is written, so nothing is copied.
Status SealedBlock::have_huge_pages() {
  const Bytes huge = std::ssize(bytes_) / kHugePage * kHugePage;
  for (Bytes at = 0; at < huge; at += kHugePage) {
    std::byte* page = bytes_.data() + at;
    *const_cast<volatile std::byte*>(page) = std::byte{0};
    if (::madvise(page, size(kHugePage), MADV_COLLAPSE) != 0) {
      return system_error(Code::unavailable, "have pages of 2 MiB in a block of memory");
    }
  }
  return {};
}

Status SealedBlock::seal() {
  CHECK(!is_sealed_);
  const Bytes label_at = round_up(std::ssize(bytes_), kPage);
  LabelPage page{};
  std::ranges::copy(label_, page.begin());
  if (::pwrite(fd_.get(), page.data(), page.size(), label_at) != std::ssize(page)) {
    return system_error(Code::unavailable, "label a block of memory");
  }
  // The kernel seals only what nobody can write to: no writable map may be left.
  if (::mmap(bytes_.data(), size(label_at), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED ||
      ::fcntl(fd_.get(), F_ADD_SEALS, kAllSeals) != 0) {
    return system_error(Code::unavailable, "seal a block of memory");
  }
  is_sealed_ = true;
  return map(PROT_READ, MAP_PRIVATE);
}

SealedBlock::SealedBlock(SealedBlock&& other) noexcept
    : fd_(std::move(other.fd_)),
      label_(std::move(other.label_)),
      map_(std::exchange(other.map_, {})),
      bytes_(std::exchange(other.bytes_, {})),
      is_sealed_(other.is_sealed_) {}

SealedBlock& SealedBlock::operator=(SealedBlock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(label_, other.label_);
  std::swap(map_, other.map_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_sealed_, other.is_sealed_);
  return *this;
}

SealedBlock::~SealedBlock() {
  if (!map_.empty()) ::munmap(map_.data(), map_.size());
}

}  // namespace plimsoll
