// OomWatch: whether the kernel has just ended a process because memory ran out, in a control group
// or everywhere. To the parent such an end is a SIGKILL like any other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "shared/base/clock.h"

namespace plimsoll {

class OomWatch {
 public:
  // `root` stands before /proc, for tests.
  explicit OomWatch(std::filesystem::path root = "/");

  // REQUIRES: every few seconds. What was counted before that is no news.
  void look(TimePoint now);
  // Since a look that is 5 s old or more. Nothing: the kernel does not count (before Linux 4.13).
  std::optional<bool> has_killed() const;

 private:
  std::optional<std::int64_t> count() const;

  std::filesystem::path root_;
  std::optional<std::int64_t> before_;
  std::optional<std::int64_t> at_last_look_;
  TimePoint looked_{};
};

}  // namespace plimsoll
