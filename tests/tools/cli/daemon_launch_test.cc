#include "tools/cli/daemon_launch.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

int exit_code_of(LaunchedDaemon& daemon) {
  const TimePoint deadline = now() + seconds(20);
  while (now() < deadline) {
    if (const std::optional<int> code = daemon.watch(milliseconds(50))) return *code;
  }
  return -1;
}

TEST(DaemonLaunch, GivesTheDaemonsWordsAndItsExitCode) {
  Result<LaunchedDaemon> daemon =
      LaunchedDaemon::launch("/bin/sh", {"-c", "echo refused; echo because >&2; exit 78"});
  ASSERT_TRUE(daemon) << daemon.error().message;
  EXPECT_EQ(exit_code_of(*daemon), 78);
  EXPECT_EQ(daemon->output(), "refused\nbecause\n");
}

TEST(DaemonLaunch, TheDaemonHasASessionOfItsOwn) {
  Result<LaunchedDaemon> daemon = LaunchedDaemon::launch(
      "/bin/sh", {"-c", "test $(cut -d' ' -f6 /proc/$$/stat) = $$ || exit 9"});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(exit_code_of(*daemon), 0);
}

TEST(DaemonLaunch, ASignalIsAnEndToo) {
  Result<LaunchedDaemon> daemon = LaunchedDaemon::launch("/bin/sh", {"-c", "kill -9 $$"});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(exit_code_of(*daemon), 128 + 9);
}

TEST(DaemonLaunch, OnlyTheEndOfMuchOutputIsKept) {
  Result<LaunchedDaemon> daemon =
      LaunchedDaemon::launch("/bin/sh", {"-c", "head -c 300000 /dev/zero | tr '\\0' x; echo end"});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(exit_code_of(*daemon), 0);
  EXPECT_EQ(daemon->output().size(), 64U * 1024U);
  EXPECT_TRUE(daemon->output().ends_with("xend\n"));
}

TEST(DaemonLaunch, OfALogTheErrorsMessagesAreShown) {
  EXPECT_EQ(daemon_errors("2026-01-01T00:00:00.000 I plimsolld: stopped\n"
                          "2026-01-01T00:00:00.001 E plimsolld: the plan does not fit:\n"
                          "2026-01-01T00:00:00.001 E plimsolld:   kv 5 GiB\n"),
            "the plan does not fit:\n  kv 5 GiB\n");
  EXPECT_EQ(daemon_errors("plimsolld: --tpp: unknown option\n"),
            "plimsolld: --tpp: unknown option\n");
}

TEST(DaemonLaunch, AProgramThatCannotRunIsSaidAtOnce) {
  const Result<LaunchedDaemon> daemon = LaunchedDaemon::launch("/nowhere/plimsolld", {});
  ASSERT_FALSE(daemon);
  EXPECT_NE(daemon.error().message.find("/nowhere/plimsolld"), std::string::npos);
  EXPECT_EQ(sibling_program("no-such-program").error().code, Code::not_found);
}

}  // namespace
}  // namespace plimsoll
