#include <gtest/gtest.h>

#include "daemon/supervisor.h"
#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorMemory, MemoryThatIsBeingReleasedIsWaitedForAndItsHoldersAreNamedOnce) {
  Harness h;
  h.refusal = does_not_fit("no room");
  h.held = HeldMemory{kGiB, {"PID 7 (ann: train) holds 70.00 GiB"}};
  h.handle(Begin{});
  EXPECT_EQ(h.count_logged("PID 7"), 1U);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::planned);
  EXPECT_FALSE(h.exit_code);
  for (int i = 0; i < 20; ++i) {  // 5 s, longer than it would wait for nothing
    h.held->available += kGiB;
    ASSERT_TRUE(h.pass(kMemoryPoll)) << i;
  }
  EXPECT_EQ(h.plans, 21);
  EXPECT_EQ(h.count_logged("PID 7"), 1U);
  h.refusal.reset();
  EXPECT_TRUE(h.pass(kMemoryPoll));
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);
}

TEST(SupervisorMemory, MemoryThatNobodyReleasesIsRefusedSoon) {
  Harness h;
  h.refusal = does_not_fit("no room");
  h.held = HeldMemory{kGiB, {"PID 7 (ann: train) holds 70.00 GiB"}};
  h.handle(Begin{});
  const TimePoint begin = h.now;
  for (int i = 0; i < 1000 && !h.exit_code; ++i) h.pass(seconds(1));
  EXPECT_EQ(h.exit_code, 3);
  EXPECT_LE(h.now - begin, kMemoryQuiet + seconds(1));
  EXPECT_EQ(h.count_logged("no room"), 1U);
}

TEST(SupervisorMemory, APlanThatFitsOnNoMachineIsRefusedAtOnce) {
  Harness h;
  h.refusal = does_not_fit("no room");
  h.handle(Begin{});
  EXPECT_EQ(h.exit_code, 3);
  EXPECT_EQ(h.plans, 1);
}

TEST(SupervisorMemory, AStopEndsTheWaitForMemory) {
  Harness h;
  h.refusal = does_not_fit("no room");
  h.held = HeldMemory{kGiB, {}};
  h.handle(Begin{});
  h.handle(StopSignal{});
  EXPECT_EQ(h.exit_code, 0);
  EXPECT_FALSE(h.pass(seconds(10)));
  EXPECT_EQ(h.plans, 1);
}

TEST(SupervisorMemory, WhileAChangeWaitsForMemoryWhatRunsServesAndADryRunWaitsForNothing) {
  Harness h;
  h.serve();
  h.refusal = does_not_fit("no room");
  h.held = HeldMemory{kGiB, {}};
  const Json pair = Json::array({"context-length", "512"});
  h.command("reconfigure", Json::object({{"assignments", Json::array({pair})}, {"dry_run", true}}));
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
  h.reconfigure("context-length", "512");
  EXPECT_EQ(h.replies.size(), 1U) << "it waits";
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.records.size(), 1U) << "nothing is refused yet";
  h.refusal.reset();
  h.pass_for(kMemoryPoll);
  h.let_leave();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);
  EXPECT_EQ(h.supervisor().generation(), 2);
}

TEST(SupervisorMemory, WhatFailsForGoodMeanwhileIsNotGoneBackTo) {
  Harness h;
  h.serve();
  h.refusal = does_not_fit("no room");
  h.held = HeldMemory{kGiB, {}};
  h.reconfigure("context-length", "512");
  h.say(Harness::worker(0, 0), Fault{"corrupt", "the file was cut short"});
  h.end(Harness::worker(0, 0), {false, 1});
  for (int i = 0; i < 1000 && h.replies.empty(); ++i) {
    h.let_leave();
    h.pass(seconds(1));
  }
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
  EXPECT_EQ(h.records[1].outcome, Outcome::failed);
  EXPECT_EQ(h.records[2].outcome, Outcome::refused);
}

}  // namespace
}  // namespace plimsoll
