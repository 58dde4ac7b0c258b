// SharedMemory: the __shared__ memory of one block on the CPU: filled with NaN, its ends watched.
//
// Dynamic memory ends at a guard page, with known bytes around it where it does not; static
// declarations are placed as threads come to them. Under AddressSanitizer everything around them is
// poisoned; under ThreadSanitizer each block gets fresh pages.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "shared/base/result.h"

namespace plimsoll::host_cuda {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // For a new block.
  Status prepare(std::size_t dynamic_bytes);
  std::byte* dynamic() const { return dynamic_; }
  // nullptr: that is more than a block may have.
  void* declared(std::size_t bytes, const char* file, int line);
  // Whether something wrote beside the dynamic memory.
  bool is_overrun() const;

 private:
  void unmap();
  struct Declaration {
    const char* file = nullptr;
    int line = 0;
    std::byte* memory = nullptr;
  };

  std::byte* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  std::byte* dynamic_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;
  std::size_t declarations_ = 0;
  std::array<Declaration, 16> declared_;
};

}  // namespace plimsoll::host_cuda
