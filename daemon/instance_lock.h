// InstanceLock: one daemon a runtime folder. Held by a file lock, so that it ends with the process.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class InstanceLock {
 public:
  // Makes the folder (mode 0700), takes its lock and removes socket files of an earlier life.
  // Errors: unavailable where another daemon has it, which is named by its pid.
  static Result<InstanceLock> take(const std::filesystem::path& runtime);
  InstanceLock(InstanceLock&&) noexcept = default;
  InstanceLock& operator=(InstanceLock&&) = delete;
  ~InstanceLock();  // the file goes with it

 private:
  InstanceLock(UniqueFd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::filesystem::path path_;
};

}  // namespace plimsoll
