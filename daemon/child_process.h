// ChildProcess: one started program: its pidfd, its error output, the socket pair to it.
//
// A child never outlives its parent: it gets SIGKILL when the thread that started it ends (so start
// them from the main thread), and its end of the pair reads as closed. Signals go through the
// pidfd, so never to another process that got the same pid.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/events.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

class ChildProcess {
 public:
  // REQUIRES: called from the main thread. `arguments` without the program's own name. The child
  // has an own process group, no standard input, both outputs in `error_output()`, kParentFd, and
  // no other descriptor. Errors: what exec says, with the path.
  struct Place {
    int group = -1;        // as of ChildGroups::make(), or -1
    std::string variable;  // "NAME=value", in its environment in place of any of that name
  };
  static Result<ChildProcess> spawn(const std::filesystem::path& program,
                                    const std::vector<std::string>& arguments);
  static Result<ChildProcess> spawn(const std::filesystem::path& program,
                                    const std::vector<std::string>& arguments, const Place& place);
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // one that still runs is killed, and reaped unless it is abandoned

  std::int64_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable when it has ended
  int error_output() const { return error_output_.get(); }
  int pair() const { return pair_.get(); }  // for send_descriptor
  void signal(int number) const;
  void abandon() { is_abandoned_ = true; }
  // How it ended; nothing while it runs. Once an ending was returned, the pid means nothing.
  std::optional<Ending> reap();

 private:
  ChildProcess() = default;

  std::int64_t pid_ = 0;
  UniqueFd pidfd_;
  UniqueFd error_output_;
  UniqueFd pair_;
  bool is_abandoned_ = false;
};

}  // namespace plimsoll
