// SealedBlock: memory that one process fills and seals, and that others then map as it is; it lives
// as long as any process maps it or holds its descriptor. Left out of core dumps.
//
// A memfd of a fixed size. Its last page is the label that says what is in it; the seal
// (F_SEAL_WRITE) says that all of it is there, so that a block whose writer died is empty, not
// wrong. Reads are as fast as from private memory only in 2 MiB pages, which a memfd has by
// MADV_COLLAPSE (Linux 6.1) whatever the system's setting for shared memory: a block that cannot
// have them is refused. (Measured in a virtual machine: half the bandwidth with pages of 4 KiB.)
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"
#include "shared/base/units.h"

namespace plimsoll {

class SealedBlock {
 public:
  // For the holder: an empty block for that many bytes; no memory is taken yet. `name` is only
  // shown in /proc/PID/maps.
  static Result<UniqueFd> create(const std::string& name, Bytes bytes);
  // What is in a block, and that it is all there; nothing where it is not sealed.
  static std::optional<std::string> label_of(int fd);

  // Maps a sealed block read-only, or becomes the one that fills it (then it is all zero).
  // Nothing: another process is filling it; come back. Errors: invalid where it is
  // another size or bears another label than `label`; unavailable where the kernel has no 2 MiB
  // pages for it.
  static Result<std::optional<SealedBlock>> open(int fd, Bytes bytes, const std::string& label);

  SealedBlock(SealedBlock&& other) noexcept;
  SealedBlock& operator=(SealedBlock&& other) noexcept;
  SealedBlock(const SealedBlock&) = delete;
  SealedBlock& operator=(const SealedBlock&) = delete;
  ~SealedBlock();

  bool is_sealed() const { return is_sealed_; }
  // Aligned to 2 MiB; writable until it is sealed.
  std::span<std::byte> bytes() const { return bytes_; }
  // Writes the label and seals. The memory stays where it is, read-only from now on.
  Status seal();

 private:
  SealedBlock(UniqueFd fd, std::string label) : fd_(std::move(fd)), label_(std::move(label)) {}
  Status reserve(Bytes bytes);
  Status empty();
  Status map(int protection, int flags);
  Status have_huge_pages();

  UniqueFd fd_;  // of its own description: it holds the lock of the one that fills
  std::string label_;
  std::span<std::byte> map_;    // address space, as the kernel gave it
  std::span<std::byte> bytes_;  // the block's contents within it
  bool is_sealed_ = false;
};

}  // namespace plimsoll
