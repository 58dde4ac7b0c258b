#include "shared/base/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/base/unique_fd.h"
#include "shared/base/units.h"

namespace plimsoll {
namespace {

Error os_error(std::string_view action, const std::filesystem::path& path) {
  const int error = errno;
  const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found : Code::unavailable;
  return {code, fmt::format("{} {}: {}", action, path.native(), std::strerror(error))};
}

Result<UniqueFd> open_regular(const std::filesystem::path& path, struct stat& facts) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), &facts) != 0) return os_error("open", path);
  if (!S_ISREG(facts.st_mode)) return invalid(fmt::format("{} is not a file", path.native()));
  return fd;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::size_t bytes_max) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return os_error("open", path);
  std::string content;
  char buffer[64 * 1024];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return os_error("read", path);
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > bytes_max) {
      return invalid(fmt::format("{} is longer than the {} that are read", path.native(),
                                 format_bytes(static_cast<Bytes>(bytes_max))));
    }
  }
}

Status write_file(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.native() + ".XXXXXX";
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return os_error("create", temporary);
  const auto give_up = [&](const char* action) {
    Error error = os_error(action, path);
    ::unlink(temporary.c_str());
    return error;
  };
  while (!content.empty()) {
    const ssize_t count = ::write(fd.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return give_up("write");
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(fd.get()) != 0) return give_up("write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up("replace");
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  struct stat facts = {};
  const UniqueFd fd = TRY(open_regular(path, facts));
  MappedFile file;
  if (facts.st_size == 0) return file;
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (start == MAP_FAILED) return os_error("map", path);
  file.bytes_ = {static_cast<const std::byte*>(start), size};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop(std::size_t offset, std::size_t length) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = (offset + length) / page * page;
  if (last <= first) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + first, last - first, MADV_DONTNEED);
}

}  // namespace plimsoll
