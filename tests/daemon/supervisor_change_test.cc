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
  h.pass_for(kWatchTime);
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
  h.pass_for(kWatchTime);
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
  h.pass_for(kWatchTime);
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
  h.pass_for(kWatchTime);
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
