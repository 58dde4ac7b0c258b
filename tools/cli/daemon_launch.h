// DaemonLaunch: starts plimsolld beside this program, in a session of its own, and listens to its
// first words.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// The program of that name in the folder of this one. Errors: not_found.
Result<std::filesystem::path> sibling_program(const std::string& name);

// Of a daemon's output the messages of its errors without their time and name; all of it where
// there are none.
std::string daemon_errors(const std::string& output);

class LaunchedDaemon {
 public:
  // Lives on when this program ends; what it prints then goes nowhere (it keeps its own log).
  static Result<LaunchedDaemon> launch(const std::filesystem::path& program,
                                       const std::vector<std::string>& arguments);
  // Reads what it prints for at most that long; its exit code once it has ended (128 + the signal
  // where one ended it).
  std::optional<int> watch(Duration time);
  // The last of what it has printed.
  const std::string& output() const { return output_; }

 private:
  LaunchedDaemon(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}
  void read_some();

  pid_t pid_;
  UniqueFd pipe_;
  std::string output_;
};

}  // namespace plimsoll
