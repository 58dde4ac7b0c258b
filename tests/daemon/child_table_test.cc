#include "daemon/child_table.h"

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "daemon/leftovers.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

constexpr ChildId kWorker{.kind = ChildId::Kind::worker, .replica = 1, .rank = 2, .incarnation = 3};

class ChildTableTest : public ::testing::Test {
 protected:
  void program(const std::string& name, const std::string& script) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  ChildTable::Start start(const ChildId& child) const {
    return {.child = child,
            .folder = folder_.path(),
            .control_endpoint = "ipc:///run/x/control",
            .instance = instance_,
            .descriptors = {{"segment", 0}}};
  }
  Ending wait(ChildTable& table, const ChildId& child) {
    pollfd wanted{.fd = table.children().at(child).process.pidfd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&wanted, 1, 20'000), 1);
    // Read only now: what a child says with its last breath lies in its pipe.
    const std::optional<ChildTable::Ended> ended = table.reap(child);
    if (!ended) return {};
    lines_ = ended->lines;
    return ended->ending;
  }

  TempFolder folder_;
  // Of this test and process alone: what another has left is not its own.
  std::string instance_ =
      std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
      std::to_string(::getpid());
  std::vector<std::string> lines_;
};

TEST_F(ChildTableTest, AWorkerIsToldWhoItIs) {
  program("plimsoll-worker", "echo $*; echo '2026-01-01T00:00:00.000 I worker 1.2: timed'; exit 7");
  ChildTable table;
  const Result<std::int64_t> pid = table.start(start(kWorker));
  ASSERT_TRUE(pid) << pid.error().message;
  EXPECT_EQ(table.pids(), std::vector<std::int64_t>{*pid});
  EXPECT_EQ(wait(table, kWorker).code, 7);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_EQ(lines_[0], "worker 1.2: --control ipc:///run/x/control --instance " + instance_ +
                           " --replica 1 --rank 2");
  EXPECT_EQ(lines_[1], "2026-01-01T00:00:00.000 I worker 1.2: timed");
  EXPECT_TRUE(table.children().empty());
}

TEST_F(ChildTableTest, ARouterHasNoRank) {
  const auto arguments = child_arguments(start({.kind = ChildId::Kind::router}));
  EXPECT_EQ(arguments, (std::vector<std::string>{"--control", "ipc:///run/x/control", "--instance",
                                                 instance_}));
}

TEST_F(ChildTableTest, SignalsToWhoIsGoneAreNothing) {
  program("plimsoll-worker", "exec sleep 100");
  ChildTable table;
  ASSERT_TRUE(table.start(start(kWorker)));
  ChildId former = kWorker;
  former.incarnation = 2;
  table.signal(former, SIGKILL);
  EXPECT_FALSE(table.reap(kWorker));
  table.signal(kWorker, SIGTERM);
  EXPECT_EQ(wait(table, kWorker).code, SIGTERM);
  table.signal(kWorker, SIGTERM);
}

TEST_F(ChildTableTest, TheLastWordsOfADeadChildAreKeptAlthoughAnotherHoldsItsPipe) {
  program("plimsoll-worker", "sleep 20 & echo first; printf 'terminate called'; kill -ABRT $$");
  ChildTable table;
  ASSERT_TRUE(table.start(start(kWorker)));
  EXPECT_EQ(wait(table, kWorker).code, SIGABRT);
  EXPECT_EQ(lines_,
            (std::vector<std::string>{"worker 1.2: first", "worker 1.2: terminate called"}));
}

TEST_F(ChildTableTest, WhatAnAbandonedChildHoldsIsNotCountedOn) {
  program("plimsoll-worker", "exec sleep 100");
  ChildTable table;
  ASSERT_TRUE(table.start(start(kWorker)));
  EXPECT_EQ(table.pids().size(), 1U);
  table.abandon(kWorker);
  EXPECT_TRUE(table.pids().empty());
  table.signal(kWorker, SIGKILL);
  EXPECT_EQ(wait(table, kWorker).code, SIGKILL) << "that it ends after all is noticed";
}

TEST_F(ChildTableTest, AMissingProgramIsAnError) {
  ChildTable table;
  const Result<std::int64_t> pid = table.start(start(kWorker));
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code, Code::not_found);
  EXPECT_TRUE(table.children().empty());
}

TEST_F(ChildTableTest, WhatAChildHasStartedEndsAfterIt) {
  program("plimsoll-worker", "setsid sleep 300 > /dev/null 2>&1 < /dev/null & exit 0");
  ChildTable table;
  ASSERT_TRUE(table.start(start(kWorker)));
  EXPECT_TRUE(table.tidy().empty()) << "it lives";
  (void)wait(table, kWorker);
  const std::vector<std::string> lines = table.tidy();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("left behind"), std::string::npos) << lines[0];
  EXPECT_TRUE(processes_of(instance_).empty());
  EXPECT_TRUE(table.tidy().empty()) << "each is said once";
}

}  // namespace
}  // namespace plimsoll
