// SharedBlock: memory that processes share by passing a file descriptor; it has no name to leak.
//
// The creator reserves every page at once, so that too little memory is an error here and not a
// SIGBUS later, and seals the size, so that no holder can shrink it under the others. The memory
// lives as long as any process maps it or holds its descriptor. Left out of core dumps.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"
#include "shared/base/units.h"

namespace plimsoll {

class SharedBlock {
 public:
  // Zeroed memory of that many bytes; `name` is only shown in /proc/PID/maps.
  static Result<SharedBlock> create(const std::string& name, Bytes bytes);
  // Maps a block that another process created. Errors: not a sealed block, shorter than bytes_min.
  static Result<SharedBlock> map(UniqueFd fd, Bytes bytes_min);

  SharedBlock(SharedBlock&& other) noexcept;
  SharedBlock& operator=(SharedBlock&& other) noexcept;
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  ~SharedBlock();

  std::span<std::byte> bytes() const { return memory_; }
  int fd() const { return fd_.get(); }  // to pass on; stays owned here

 private:
  SharedBlock(UniqueFd fd, std::span<std::byte> memory) : fd_(std::move(fd)), memory_(memory) {}
  static Result<SharedBlock> map_bytes(UniqueFd fd, Bytes bytes);

  UniqueFd fd_;
  std::span<std::byte> memory_;
};

}  // namespace plimsoll
