// InstanceLock: one daemon a folder, of sockets or of records. Held by a file lock, so that it ends
// with the process.
#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class InstanceLock {
 public:
  // Makes the runtime folder (mode 0700), takes its lock and removes socket files of an earlier
  // life. Errors: unavailable where another daemon has it, which is named by its pid.
  static Result<InstanceLock> take(const std::filesystem::path& runtime);
  // Likewise of the folder of records, which two daemons would number and replace for each other.
  static Result<InstanceLock> take_state(const std::filesystem::path& state);
  InstanceLock(InstanceLock&&) noexcept = default;
  InstanceLock& operator=(InstanceLock&&) = delete;
  ~InstanceLock();  // the file goes with it

 private:
  // Files of two names, so that one folder can be both.
  struct Use {
    const char* folder;
    const char* file;
    const char* option;
    const char* reached;  // how the other one is: more words of the command that ends it
  };
  static Result<InstanceLock> take(const std::filesystem::path& folder, const Use& use);
  InstanceLock(UniqueFd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::filesystem::path path_;
};

}  // namespace plimsoll
