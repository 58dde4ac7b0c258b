#include "daemon/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

constexpr int kExecErrorFd = kParentFd + 1;
constexpr int kFirstFreeFd = 16;  // above all that the child is given

// What belongs to the daemon's own talk with the service manager.
constexpr std::array<std::string_view, 6> kPrivateVariables = {
    "NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID=",
    "LISTEN_PID=",    "LISTEN_FDS=",    "LISTEN_FDNAMES="};

std::string system_error(int number = errno) { return std::strerror(number); }

// Everything that the child needs, made before fork: after it, another thread's lock may be held
// for ever, so that only plain system calls are allowed.
struct Prepared {
  std::string program;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  int null_input = -1;
  int output = -1;
  int pair = -1;
  int exec_error = -1;
  int group = -1;  // of its control group; -1: the daemon's own
  pid_t parent = 0;
};

[[noreturn]] void give_up(int exec_error) {
  const int number = errno;
  (void)!::write(exec_error, &number, sizeof number);  // nobody else to tell
  ::_exit(127);
}

[[noreturn]] void become(const Prepared& prepared) {
  ::setpgid(0, 0);  // a terminal's Ctrl-C is for the daemon, which stops its children in order
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(127);  // it died before the line above
  // Before it starts anything that could stay outside. A group that is gone is no reason to fail.
  if (prepared.group >= 0) (void)!::write(prepared.group, "0", 1);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool is_set = ::dup2(prepared.null_input, 0) == 0 && ::dup2(prepared.output, 1) == 1 &&
                      ::dup2(prepared.output, 2) == 2 &&
                      ::dup2(prepared.pair, kParentFd) == kParentFd &&
                      ::dup3(prepared.exec_error, kExecErrorFd, O_CLOEXEC) == kExecErrorFd;
  if (!is_set) give_up(prepared.exec_error);
  ::syscall(SYS_close_range, kExecErrorFd + 1, ~0U, 0);
  ::execve(prepared.program.c_str(), prepared.arguments.data(), prepared.environment.data());
  give_up(kExecErrorFd);
}

// A copy with a number that no dup2 in the child overwrites.
Result<UniqueFd> moved_up(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
  if (!copy) return unavailable("copy a descriptor: " + system_error());
  return copy;
}

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};
Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return unavailable("make a pipe: " + system_error());
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool is_private(const char* variable) {
  for (const std::string_view name : kPrivateVariables) {
    if (std::string_view(variable).starts_with(name)) return true;
  }
  return false;
}

}  // namespace

Result<ChildProcess> ChildProcess::spawn(const std::filesystem::path& program,
                                         const std::vector<std::string>& arguments) {
  return spawn(program, arguments, Place());
}

Result<ChildProcess> ChildProcess::spawn(const std::filesystem::path& program,
                                         const std::vector<std::string>& arguments,
                                         const Place& place) {
  const std::string context = fmt::format("start {}: ", program.string());
  Pipe output = TRY_CONTEXT(context, make_pipe());
  Pipe exec_error = TRY_CONTEXT(context, make_pipe());
  SocketPair pair = TRY_CONTEXT(context, descriptor_pair());
  const UniqueFd null_input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_input) return unavailable(context + "open /dev/null: " + system_error());
  const UniqueFd child_null = TRY_CONTEXT(context, moved_up(null_input.get()));
  const UniqueFd child_output = TRY_CONTEXT(context, moved_up(output.writer.get()));
  const UniqueFd child_pair = TRY_CONTEXT(context, moved_up(pair.child.get()));
  UniqueFd child_error = TRY_CONTEXT(context, moved_up(exec_error.writer.get()));

  Prepared prepared{.program = program.string(),
                    .arguments = {},
                    .environment = {},
                    .null_input = child_null.get(),
                    .output = child_output.get(),
                    .pair = child_pair.get(),
                    .exec_error = child_error.get(),
                    .group = place.group,
                    .parent = ::getpid()};
  prepared.arguments.push_back(prepared.program.data());
  for (const std::string& argument : arguments) {
    prepared.arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  prepared.arguments.push_back(nullptr);
  const std::string name = place.variable.substr(0, place.variable.find('=') + 1);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_replaced = !name.empty() && std::string_view(*variable).starts_with(name);
    if (!is_private(*variable) && !is_replaced) prepared.environment.push_back(*variable);
  }
  if (!name.empty()) prepared.environment.push_back(const_cast<char*>(place.variable.c_str()));
  prepared.environment.push_back(nullptr);

  const pid_t pid = ::fork();
  if (pid < 0) return unavailable(context + "fork: " + system_error());
  if (pid == 0) become(prepared);

  ChildProcess child;
  child.pid_ = pid;
  // Nobody else waits for it, so the pid cannot be another process's yet.
  child.pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!child.pidfd_) {
    const std::string why = system_error();
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return unavailable(context + "open its pidfd: " + why);
  }
  child_error.reset();
  exec_error.writer.reset();
  int number = 0;
  ssize_t got = 0;
  do {
    got = ::read(exec_error.reader.get(), &number, sizeof number);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof number)) {
    const std::string words = context + system_error(number);
    return number == ENOENT || number == EACCES || number == ENOEXEC ? not_found(words)
                                                                     : unavailable(words);
  }
  child.error_output_ = std::move(output.reader);
  (void)::fcntl(child.error_output_.get(), F_SETFL, O_NONBLOCK);  // cannot fail on a pipe
  child.pair_ = std::move(pair.parent);
  return child;
}

ChildProcess::~ChildProcess() {
  if (!pidfd_) return;
  signal(SIGKILL);
  if (is_abandoned_) return;
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0 &&
         errno == EINTR) {
  }
}

void ChildProcess::signal(int number) const {
  // Fails only for a process that has ended, which is what was wanted.
  (void)::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

std::optional<Ending> ChildProcess::reap() {
  siginfo_t info{};
  if (!pidfd_) return std::nullopt;
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0) {
    return std::nullopt;
  }
  if (info.si_pid == 0) return std::nullopt;
  pidfd_.reset();
  return Ending{.by_signal = info.si_code != CLD_EXITED, .code = info.si_status};
}

}  // namespace plimsoll
