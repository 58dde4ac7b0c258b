#include "tools/cli/daemon_launch.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/text.h"

namespace plimsoll {
namespace {

constexpr std::size_t kOutputBytesMax = 64 * 1024;

// In the child. Only async-signal-safe calls; never returns.
[[noreturn]] void become(const char* program, char* const* arguments, int output, int failure) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  // Its output's reader goes away some day.
  std::signal(SIGPIPE, SIG_IGN);
  ::execv(program, arguments);
  const int error = errno;
  (void)!::write(failure, &error, sizeof error);
  ::_exit(127);
}

Result<std::pair<UniqueFd, UniqueFd>> make_pipe(int flags) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), flags) != 0) {
    return unavailable(fmt::format("make a pipe: {}", std::strerror(errno)));
  }
  return std::pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

Result<std::filesystem::path> sibling_program(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return not_found(fmt::format("find this program: {}", failure.message()));
  const std::filesystem::path program = self.parent_path() / name;
  if (::access(program.c_str(), X_OK) != 0) {
    return not_found(
        fmt::format("{} is not there: it must stand beside {}", program.string(), self.string()));
  }
  return program;
}

std::string daemon_errors(const std::string& output) {
  constexpr std::string_view kMark = " E plimsolld: ";
  std::string errors;
  for (const std::string_view line : split(output, '\n')) {
    const std::size_t at = line.find(kMark);
    if (at != std::string_view::npos) errors += fmt::format("{}\n", line.substr(at + kMark.size()));
  }
  return errors.empty() ? output : errors;
}

Result<LaunchedDaemon> LaunchedDaemon::launch(const std::filesystem::path& program,
                                              const std::vector<std::string>& arguments) {
  auto [output, output_write] = TRY(make_pipe(O_CLOEXEC));
  auto [failure, failure_write] = TRY(make_pipe(O_CLOEXEC));
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), program.string());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  const pid_t pid = ::fork();
  if (pid < 0)
    return unavailable(fmt::format("start {}: {}", program.string(), std::strerror(errno)));
  if (pid == 0) become(program.c_str(), pointers.data(), output_write.get(), failure_write.get());
  output_write.reset();
  failure_write.reset();
  int error = 0;
  if (::read(failure.get(), &error, sizeof error) == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return unavailable(fmt::format("start {}: {}", program.string(), std::strerror(error)));
  }
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  return LaunchedDaemon(pid, std::move(output));
}

void LaunchedDaemon::read_some() {
  std::array<char, 4096> piece{};
  while (pipe_) {
    const ssize_t got = ::read(pipe_.get(), piece.data(), piece.size());
    if (got > 0) {
      output_.append(piece.data(), static_cast<std::size_t>(got));
      if (output_.size() > kOutputBytesMax) output_.erase(0, output_.size() - kOutputBytesMax);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) pipe_.reset();
    return;
  }
}

std::optional<int> LaunchedDaemon::watch(Duration time) {
  pollfd waited{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  const auto count = std::chrono::duration_cast<milliseconds>(time).count();
  ::poll(&waited, 1, static_cast<int>(count));
  read_some();
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  read_some();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace plimsoll
