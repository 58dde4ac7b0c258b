#include "daemon/child_process.h"

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

constexpr int kTimeMs = 20'000;

bool wait_for(int fd) {
  pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, kTimeMs) == 1;
}

ChildProcess shell(const std::string& script) {
  Result<ChildProcess> child = ChildProcess::spawn("/bin/sh", {"-c", script});
  EXPECT_TRUE(child) << child.error().message;
  return std::move(*child);
}

Ending wait_end(ChildProcess& child) {
  EXPECT_TRUE(wait_for(child.pidfd()));
  const std::optional<Ending> ending = child.reap();
  EXPECT_TRUE(ending);
  return ending.value_or(Ending{});
}

// All that the child writes until its outputs are closed.
std::string read_all(const ChildProcess& child) {
  std::string all;
  std::array<char, 4096> buffer;
  while (wait_for(child.error_output())) {
    const ssize_t got = ::read(child.error_output(), buffer.data(), buffer.size());
    if (got <= 0) break;
    all.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return all;
}

bool is_running(pid_t pid) {
  // A zombie that nobody has reaped yet has ended too.
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY));
  std::array<char, 256> text{};
  if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0) return false;
  const char* after_name = std::strrchr(text.data(), ')');
  return after_name != nullptr && after_name[2] != 'Z';
}

TEST(ChildProcess, ItsExitCodeAndItsSignalAreKnown) {
  ChildProcess quiet = shell("exit 78");
  const Ending ending = wait_end(quiet);
  EXPECT_FALSE(ending.by_signal);
  EXPECT_EQ(ending.code, 78);
  ChildProcess killed = shell("kill -SEGV $$; sleep 100");
  const Ending death = wait_end(killed);
  EXPECT_TRUE(death.by_signal);
  EXPECT_EQ(death.code, SIGSEGV);
}

TEST(ChildProcess, OneThatRunsIsNotReaped) {
  ChildProcess child = shell("exec sleep 100");
  EXPECT_FALSE(child.reap());
  child.signal(SIGTERM);
  EXPECT_EQ(wait_end(child).code, SIGTERM);
}

TEST(ChildProcess, BothOutputsArriveAndItsInputIsEmpty) {
  const ChildProcess child = shell("cat; echo out; echo err >&2");
  EXPECT_EQ(read_all(child), "out\nerr\n");
}

TEST(ChildProcess, ItHasNoDescriptorButItsFour) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  const ChildProcess child = shell("ls /proc/$$/fd; exit 0");
  ::close(leaked);
  EXPECT_EQ(read_all(child), "0\n1\n2\n3\n");
}

TEST(ChildProcess, SignalsAreAsAtTheStartOfAProgram) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto handler_before = ::signal(SIGPIPE, SIG_IGN);
  ChildProcess child = shell("grep -E '^Sig(Blk|Ign)' /proc/self/status");
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGPIPE, handler_before);
  EXPECT_EQ(read_all(child), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST(ChildProcess, ItHasAProcessGroupOfItsOwnAndNoWordsForTheServiceManager) {
  ::setenv("NOTIFY_SOCKET", "/run/x", 1);
  ::setenv("PLIMSOLL_TEST", "kept", 1);
  ChildProcess child = shell(
      "echo $(ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat)"
      " $$ [$NOTIFY_SOCKET] $PLIMSOLL_TEST");
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("PLIMSOLL_TEST");
  const std::string pid = std::to_string(child.pid());
  EXPECT_EQ(read_all(child), pid + " " + pid + " [] kept\n");
}

TEST(ChildProcess, DescriptorsReachIt) {
  ChildProcess child = shell("exec sleep 100");
  EXPECT_TRUE(send_descriptor(child.pair(), "segment", child.pidfd()));
}

TEST(ChildProcess, AProgramThatIsMissingIsAnErrorWithItsPath) {
  const Result<ChildProcess> child = ChildProcess::spawn("/nowhere/plimsoll-worker", {});
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, Code::not_found);
  EXPECT_NE(child.error().message.find("/nowhere/plimsoll-worker"), std::string::npos);
}

TEST(ChildProcess, NoneOutlivesItsOwner) {
  std::int64_t pid = 0;
  {
    const ChildProcess child = shell("trap '' TERM; while :; do sleep 1; done");
    pid = child.pid();
  }
  EXPECT_FALSE(is_running(static_cast<pid_t>(pid)));
}

TEST(ChildProcess, TheDeathOfTheParentKillsIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const Result<ChildProcess> child = ChildProcess::spawn("/bin/sh", {"-c", "exec sleep 100"});
    const auto pid = static_cast<pid_t>(child->pid());
    (void)!::write(ends[1], &pid, sizeof pid);
    ::raise(SIGKILL);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const TimePoint deadline = now() + seconds(20);
  while (is_running(child) && now() < deadline) ::sched_yield();
  EXPECT_FALSE(is_running(child));
}

}  // namespace
}  // namespace plimsoll
