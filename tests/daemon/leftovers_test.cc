#include "daemon/leftovers.h"

#include <csignal>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/unique_fd.h"
#include "tests/support/fake_root.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

void process(const FakeRoot& root, std::int64_t pid, const std::string& variable) {
  root.file(fmt::format("proc/{}/environ", pid),
            std::string("HOME=/\0", 7) + variable + std::string("\0X=1\0", 5));
}

// A process that sleeps, with that variable in its environment.
class Sleeper {
 public:
  explicit Sleeper(std::string variable) : pid_(::fork()) {
    if (pid_ == 0) {
      char program[] = "/bin/sleep";
      char time[] = "300";
      char* arguments[] = {program, time, nullptr};
      char* environment[] = {variable.data(), nullptr};
      ::execve(program, arguments, environment);
      ::_exit(127);
    }
    fd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    // Until it is another program, its environment is ours.
    const std::string file = fmt::format("/proc/{}/cmdline", pid_);
    const TimePoint end = now() + seconds(20);
    bool runs = false;
    while (!runs && now() < end) {
      const Result<std::string> command = read_file(file, 4096);
      runs = command && command->find("sleep") != std::string::npos;
    }
    EXPECT_TRUE(runs);
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  bool has_ended() const {
    pollfd one{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1;
  }
  std::int64_t pid() const { return pid_; }

 private:
  pid_t pid_;
  UniqueFd fd_;
};

TEST(Leftovers, AreToldByInstanceAndChildInTheirEnvironment) {
  const FakeRoot root("leftovers");
  process(root, 10, instance_variable("abc", "worker-0-0-1"));
  process(root, 11, instance_variable("abc", "worker-0-1-1"));
  process(root, 12, instance_variable("abcd", "worker-0-0-1"));
  process(root, 13, "PLIMSOLLD_INSTANCE_NOT=abc/worker-0-0-1");
  root.file("proc/self/environ", instance_variable("abc", "worker-0-0-1"));
  EXPECT_EQ(processes_of("abc", {}, root.path()), (std::vector<std::int64_t>{10, 11}));
  EXPECT_EQ(processes_of("abc", {"worker-0-1-1"}, root.path()), (std::vector<std::int64_t>{11}));
  EXPECT_TRUE(processes_of("ab", {}, root.path()).empty());
}

TEST(Leftovers, OnlyThoseThatAreMeantAreEnded) {
  const Sleeper meant(instance_variable("test-leftovers", "worker-0-0-1"));
  const Sleeper other(instance_variable("test-leftovers", "worker-1-0-2"));
  const std::vector<std::string> lines = end_processes_of("test-leftovers", {"worker-0-0-1"});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(std::to_string(meant.pid())), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("sleep 300"), std::string::npos) << lines[0];
  EXPECT_TRUE(meant.has_ended());
  EXPECT_FALSE(other.has_ended());
}

TEST(Leftovers, ALifeEndsWhatEarlierOnesOfThisBootHaveLeft) {
  const TempFolder folder;
  const Sleeper left(instance_variable("test-first-life", "router-1"));
  EXPECT_TRUE(Lives::begin(folder.path(), "test-first-life").empty());
  EXPECT_FALSE(left.has_ended());
  EXPECT_EQ(Lives::begin(folder.path(), "test-second-life").size(), 1U);
  EXPECT_TRUE(left.has_ended());
}

TEST(Leftovers, AnInstanceOfAnotherBootIsLongGone) {
  const TempFolder folder;
  const Sleeper stranger(instance_variable("test-old-boot", "router-1"));
  std::ofstream(folder.path() / "instances") << "another-boot test-old-boot\n";
  EXPECT_TRUE(Lives::begin(folder.path(), "test-new").empty());
  EXPECT_FALSE(stranger.has_ended());
}

}  // namespace
}  // namespace plimsoll
