#include "worker/death_pipe.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace plimsoll {
namespace {

constexpr int kGone = POLLHUP | POLLERR | POLLNVAL | POLLRDHUP;

void watch_until_gone(int parent_fd, int stop_fd) {
  std::array<pollfd, 2> fds{{{.fd = parent_fd, .events = POLLRDHUP, .revents = 0},
                             {.fd = stop_fd, .events = POLLIN, .revents = 0}}};
  while (true) {
    const int ready = ::poll(fds.data(), fds.size(), -1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0 || (fds[0].revents & kGone) != 0) ::_exit(kOrphanExitCode);
    if (fds[1].revents != 0) return;
  }
}

}  // namespace

Result<DeathPipe> DeathPipe::watch(int parent_fd) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a second line of defence; the pipe is the first
  pollfd parent{.fd = parent_fd, .events = POLLRDHUP, .revents = 0};
  // Looked at after prctl: a parent that died before it sent no signal, but has closed its end.
  if (::poll(&parent, 1, 0) < 0 || (parent.revents & kGone) != 0) {
    return unavailable(
        "descriptor 3 is not an open socket to a supervisor: this program is started by plimsolld");
  }
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return internal_error("make an eventfd to stop a thread with");
  std::thread thread(watch_until_gone, parent_fd, stop.get());
  return DeathPipe(std::move(stop), std::move(thread));
}

DeathPipe::~DeathPipe() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) != sizeof one) ::_exit(kOrphanExitCode);
  thread_.join();
}

}  // namespace plimsoll
