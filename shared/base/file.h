// File: whole files in and out, and read-only maps of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace plimsoll {

Result<std::string> read_file(const std::filesystem::path& path, std::size_t bytes_max);
// Atomic: a temporary file in the same folder, fsync, rename.
Status write_file(const std::filesystem::path& path, std::string_view content);

// A file mapped read-only; unmapped at destruction.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Drops the pages of [offset, offset+length) from this process (they stay in the page cache).
  void drop(std::size_t offset, std::size_t length) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace plimsoll
