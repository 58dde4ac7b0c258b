#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorChange, BesideTheNewReplicaIsProvedBeforeTheOldOneDrains) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.reconfigure("threads", "3");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.table(), "0 ready, 1 loading");
  h.bring_up(1, 1);
  EXPECT_EQ(h.table(), "0 ready, 1 proving");
  const std::vector<Probe> probes = h.sent<Probe>(h.peer_of(Harness::router()));
  EXPECT_EQ(probes.back().replica, 1);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 draining, 1 ready");
  EXPECT_TRUE(h.replies.empty());
  h.let_leave();
  EXPECT_EQ(h.table(), "1 ready");
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.replies[0].result.find("path")->as_string(), "beside");
  EXPECT_EQ(h.replies[0].result.find("pause_s")->as_double(), 0.0);
  EXPECT_EQ(h.committed->generation, 2);
  EXPECT_TRUE(h.find(Harness::router()));
}

TEST(SupervisorChange, ACanaryBesideThatDiesTouchesNothing) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.reconfigure("threads", "3");
  h.die(Harness::worker(1, 0), SIGABRT);
  EXPECT_EQ(h.table(), "0 ready");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_NE(h.replies[0].message.find("SIGABRT"), std::string::npos) << h.replies[0].message;
  EXPECT_EQ(h.supervisor().generation(), 1);
  EXPECT_FALSE(h.supervisor().options().values.threads);
  EXPECT_EQ(h.records[2].outcome, Outcome::failed);
  EXPECT_EQ(h.records[1].outcome, Outcome::serving);
  EXPECT_EQ(h.committed->generation, 1);
}

TEST(SupervisorChange, ACanaryThatAnswersNoTestRequestIsTakenBack) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.reconfigure("threads", "3");
  h.bring_up(1, 1);
  for (int i = 0; i < 10 && h.supervisor().generation() == 2; ++i) {
    h.answer_probe(false);
    h.pass_for(seconds(1));
  }
  h.let_leave();
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_NE(h.replies[0].message.find("it does not work"), std::string::npos)
      << h.replies[0].message;
  EXPECT_EQ(h.table(), "0 ready");
}

TEST(SupervisorChange, RollingMovesOneReplicaAtATimeAndAlwaysServes) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.restart("rolling");
  EXPECT_EQ(h.table(), "0 draining, 1 ready");
  h.let_leave();
  EXPECT_EQ(h.table(), "1 ready, 0 loading");
  h.bring_up(0, 1);
  EXPECT_EQ(h.table(), "1 ready, 0 proving");
  h.answer_probe();
  EXPECT_EQ(h.table(), "1 draining, 0 ready");
  h.let_leave();
  h.bring_up(1, 1);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.replies[0].result.find("pause_s")->as_double(), 0.0);
}

TEST(SupervisorChange, ALaterReplicaThatFailsTakesTheEarlierOnesBackToo) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.reconfigure("threads", "3");
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  h.let_leave();
  h.die(Harness::worker(1, 0), SIGSEGV);
  // The last one first: nobody but the first replica serves meanwhile.
  EXPECT_EQ(h.supervisor().generation(), 1);
  EXPECT_EQ(h.table(), "0 ready, 1 loading");
  h.bring_up(1, 1);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 draining, 1 ready");
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.table(), "1 ready, 0 ready");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  EXPECT_NE(h.replies[0].message.find("SIGSEGV"), std::string::npos) << h.replies[0].message;
  EXPECT_EQ(h.replies[0].result.find("pause_s")->as_double(), 0.0);
  for (const Cohort& cohort : h.supervisor().deployment()->cohorts()) {
    EXPECT_FALSE(cohort.plan().options.values.threads);
  }
}

TEST(SupervisorChange, WhatComesBackDamagedIsLeftOutAndTheChangeEnds) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.reconfigure("threads", "3");
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  h.let_leave();
  h.die(Harness::worker(1, 0), SIGSEGV);
  h.bring_up(1, 1);
  h.answer_probe();
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe(false, "corrupt");
  h.let_leave();
  EXPECT_EQ(h.table(), "1 ready, 0 failed");
  ASSERT_EQ(h.replies.size(), 1U) << "the change goes on for ever";
  EXPECT_EQ(h.replies[0].exit_code, 75);
}

TEST(SupervisorChange, OnThePathHoldTheRouterStaysAndIsToldToWait) {
  Harness h(2);
  h.serve();
  h.reconfigure("tp", "1");
  EXPECT_EQ(h.table(), "0 draining");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);
  h.let_leave();
  EXPECT_TRUE(h.find(Harness::router()));
  h.now += seconds(4);
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].result.find("path")->as_string(), "hold");
  EXPECT_EQ(h.replies[0].result.find("pause_s")->as_double(), 4.0);
  EXPECT_TRUE(h.replies[0].result.find("predicted_pause_s"));
}

TEST(SupervisorChange, WhoDoesNotDrainInTimeIsKilledAndItGoesOn) {
  Harness h(1);
  h.serve(1, 1);
  h.restart("hold");
  h.pass_for(seconds(60));
  h.let_leave();
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorChange, ADeathWhileDrainingIsSaidAndFreesItsPeers) {
  Harness h(2, 2);
  h.serve(2, 2);
  h.restart("rolling");
  h.die(Harness::worker(0, 1), SIGKILL);
  EXPECT_EQ(h.aborts.size(), 1U);
  EXPECT_EQ(h.count_logged("SIGKILL while it was draining"), 1U) << h.all_lines();
  h.let_leave();
  EXPECT_TRUE(h.find(Harness::worker(0, 1))) << "its successor";
}

TEST(SupervisorChange, TheRoutersDeathWhileAReplicaProvesItselfIsSurvived) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.restart("beside");
  h.bring_up(1, 1);
  h.die(Harness::router());
  h.pass_for(seconds(1));
  h.bring_up_router();
  EXPECT_EQ(h.table(), "0 ready, 1 proving");
  for (int i = 0; i < 3; ++i) h.answer_probe();
  h.let_leave();
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
}

TEST(SupervisorChange, AfterTheRoutersDeathItServesAgainWhileTheChangeGoesOn) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.restart("rolling");
  h.let_leave();
  ASSERT_EQ(h.supervisor().state(), DeploymentState::serving) << "by the second one";
  h.die(Harness::router());
  h.pass_for(seconds(1));
  h.bring_up_router();
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << "the first one still loads";
  EXPECT_TRUE(h.replies.empty());
  for (const std::int64_t replica : {0, 1}) {
    h.bring_up(replica, 1);
    h.answer_probe();
    EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
    h.let_leave();
  }
  h.pass_for(ChangeWatch::kWatchTime);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
}

TEST(SupervisorChange, TheRouterLetsInOnlyWhatFitsBothGenerations) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.context_length = 1000;
  h.serve(1, 1);
  h.context_length = 500;
  h.restart("beside");
  const auto limit = [&h] {
    return h.sent<RouterSetup>(h.peer_of(Harness::router())).back().context_length;
  };
  EXPECT_EQ(limit(), 500) << "at once";
  h.die(Harness::worker(1, 0));
  EXPECT_EQ(limit(), 1000) << "it was taken back";
}

// A death that the rank's mutex tells of at once, and the kernel only when it is done with the
// memory.
void die_slowly(Harness& h, std::int64_t replica, int signal) {
  const ChildId rank = *h.find(Harness::worker(replica, 0));
  h.handle(ChildDying{rank});
  h.now += milliseconds(200);
  h.handle(Tick{});
  EXPECT_TRUE(h.replies.empty());
  h.alive.erase(rank);
  h.handle(ChildExited{rank, {true, signal}});
}

TEST(SupervisorChange, ADeathInTheWatchedSecondsIsNamed) {
  for (const std::string path : {"beside", "hold", "restart"}) {
    Harness h(1);
    h.memory_available = 100 * kGiB;
    h.serve(1, 1);
    h.reconfigure("threads", "3", path);
    h.let_leave();
    if (path == "restart") h.bring_up_router();
    const std::int64_t replica = path == "beside" ? 1 : 0;
    h.bring_up(replica, 1);
    h.answer_probe();
    h.let_leave();
    ASSERT_EQ(h.supervisor().state(), DeploymentState::serving) << path;
    die_slowly(h, replica, SIGSEGV);
    for (int i = 0; i < 5; ++i) {
      h.pass_for(seconds(1));
      h.let_leave();
    }
    EXPECT_EQ(h.supervisor().generation(), 1) << path;
    EXPECT_EQ(h.records[2].outcome, Outcome::failed) << path;
    EXPECT_NE(h.records[2].message.find("SIGSEGV"), std::string::npos) << h.records[2].message;
    EXPECT_NE(h.records[2].message.find("within 2 s"), std::string::npos) << h.records[2].message;
  }
}

TEST(SupervisorChange, TheRoutersDeathInTheWatchedSecondsIsForgiven) {
  for (const std::string path : {"beside", "hold", "restart"}) {
    Harness h(1);
    h.memory_available = 100 * kGiB;
    h.serve(1, 1);
    h.reconfigure("threads", "3", path);
    h.let_leave();
    if (path == "restart") h.bring_up_router();
    h.bring_up(path == "beside" ? 1 : 0, 1);
    h.answer_probe();
    h.let_leave();
    h.die(Harness::router());
    h.pass_for(seconds(1));
    h.bring_up_router();
    h.answer_probe();
    EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << path;
    h.pass_for(ChangeWatch::kWatchTime);
    ASSERT_EQ(h.replies.size(), 1U) << path;
    EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
    EXPECT_EQ(h.committed->generation, 2);
  }
}

TEST(SupervisorChange, ANewGenerationThatNeverServesAfterItsMoveIsTakenBack) {
  Harness h(1);
  h.memory_available = 100 * kGiB;
  h.serve(1, 1);
  h.reconfigure("threads", "3", "beside");
  h.let_leave();
  h.bring_up(1, 1);
  h.answer_probe();
  h.die(Harness::router());
  h.let_leave();
  h.end(Harness::worker(1, 0), {false, 78});
  for (int i = 0; i < 30 && h.supervisor().generation() == 2; ++i) {
    h.pass_for(seconds(1));
    h.let_leave();
  }
  EXPECT_EQ(h.supervisor().generation(), 1) << "the change goes on for ever";
}

TEST(SupervisorChange, OnThePathRestartNobodyIsLetInBeforeTheNewGenerationServes) {
  Harness h(1);
  h.serve(1, 1);
  h.restart("restart");
  h.let_leave();
  h.bring_up_router();
  const auto said = [&h] {
    return h.sent<Replicas>(h.peer_of(Harness::router())).back().deployment_state;
  };
  EXPECT_EQ(said(), "held");
  h.bring_up(0, 1);
  EXPECT_EQ(said(), "held");
  h.answer_probe();
  EXPECT_EQ(said(), "serving");
}

TEST(SupervisorChange, OnThePathRestartWhoWaitsIsServedByWhatComesBack) {
  Harness h(1);
  h.serve(1, 1);
  h.restart("restart");
  h.let_leave();
  h.bring_up_router();
  const std::string router = h.peer_of(Harness::router());
  h.die(Harness::worker(0, 0), SIGSEGV);
  for (const Replicas& table : h.sent<Replicas>(router)) EXPECT_EQ(table.deployment_state, "held");
  ASSERT_EQ(h.sent<Drain>(router).size(), 1U);
  EXPECT_TRUE(h.sent<Drain>(router)[0].is_followed);
  h.let_leave();
  EXPECT_TRUE(h.is_listening);
  h.bring_up_router();
  EXPECT_EQ(h.sent<Replicas>(h.peer_of(Harness::router())).back().deployment_state, "loading");
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().generation(), 1);
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
}

TEST(SupervisorChange, OnThePathRestartClientsAreHeldNoLongerThanTheirDeadline) {
  Harness h(1);
  h.serve(1, 1);
  h.restart("restart");
  h.let_leave();
  h.bring_up_router();
  h.pass_for(h.supervisor().options().values.hold_deadline + seconds(1));
  EXPECT_EQ(h.sent<Replicas>(h.peer_of(Harness::router())).back().deployment_state, "loading");
}

TEST(SupervisorChange, AStopInTheMiddleLeavesTheOptionsThatWereCommitted) {
  for (const std::string path : {"beside", "hold", "restart"}) {
    Harness h(1);
    h.memory_available = 100 * kGiB;
    h.serve(1, 1);
    h.reconfigure("threads", "3", path);
    h.let_leave();
    h.command("stop");
    for (int i = 0; i < 5; ++i) {
      h.pass_for(seconds(1));
      h.let_leave();
    }
    EXPECT_EQ(h.supervisor().state(), DeploymentState::stopped) << path;
    EXPECT_FALSE(h.supervisor().options().values.threads) << path;
  }
}

TEST(SupervisorChange, ASignalEndsAChangeThatIsUnderWay) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.restart("rolling");
  h.handle(StopSignal{});
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 75);
  for (int i = 0; i < 5 && !h.exit_code; ++i) h.let_leave();
  ASSERT_TRUE(h.exit_code);
  EXPECT_TRUE(h.alive.empty());
  EXPECT_EQ(h.committed->generation, 1);
}

}  // namespace
}  // namespace plimsoll
