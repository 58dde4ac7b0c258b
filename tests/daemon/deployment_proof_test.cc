// No replica gets requests before it has answered a real one.

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

void restart_first(Harness& h) {
  h.die(Harness::worker(0, 0), SIGSEGV);
  h.pass_for(seconds(1));
  h.bring_up(0, 1);
}

TEST(SupervisorProof, AtTheFirstStartAllReplicasProveThemselves) {
  Harness h(1, 2);
  h.handle(Begin{});
  h.bring_up_router();
  for (const std::int64_t replica : {0, 1}) h.load(replica, 1);
  for (const std::int64_t replica : {0, 1}) h.become_ready(replica, 1);
  EXPECT_EQ(h.table(), "0 proving, 1 proving");
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
}

TEST(SupervisorProof, DamagedWeightsEndTheFirstStartAtOnce) {
  Harness h(1, 1);
  h.handle(Begin{});
  h.bring_up_router();
  h.bring_up(0, 1);
  h.answer_probe(false, "corrupt");
  h.let_leave();
  EXPECT_EQ(h.exit_code, 78);
  EXPECT_EQ(h.count_logged("a test request was not answered"), 1U) << h.all_lines();
}

TEST(SupervisorProof, OneThatStartsAgainProvesItselfWhileTheOthersServe) {
  Harness h(1, 2);
  h.serve(2, 1);
  restart_first(h);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.table(), "0 proving, 1 ready");
  EXPECT_EQ(h.sent<Probe>(h.peer_of(Harness::router())).back().replica, 0);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
}

TEST(SupervisorProof, TheOnlyOneServesWhenItHasProvedItself) {
  Harness h(1, 1);
  h.serve(1, 1);
  restart_first(h);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::warming);
  EXPECT_EQ(h.table(), "0 proving");
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.table(), "0 ready");
}

TEST(SupervisorProof, OneThatDoesNotAnswerStartsAgainLater) {
  for (const std::int64_t dp : {1, 2}) {
    Harness h(1, dp);
    h.serve(dp, 1);
    restart_first(h);
    for (int i = 0; i < 3; ++i) {
      h.answer_probe(false);
      h.pass_for(milliseconds(600));
    }
    h.let_leave();
    h.pass_for(milliseconds(500));
    EXPECT_EQ(h.count_logged("does not answer a test request: it does not work; starting again"),
              1U)
        << h.all_lines();
    h.pass_for(seconds(2));
    h.bring_up(0, 1);
    h.answer_probe();
    EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
    EXPECT_EQ(h.table(), dp == 1 ? "0 ready" : "0 ready, 1 ready");
  }
}

TEST(SupervisorProof, OneWithDamagedWeightsIsLeftOutAndTheOthersServe) {
  Harness h(1, 2);
  h.serve(2, 1);
  restart_first(h);
  h.answer_probe(false, "corrupt");
  h.let_leave();
  h.pass_for(seconds(1));
  EXPECT_EQ(h.table(), "0 failed, 1 ready");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.count_logged("it is not started again"), 1U) << h.all_lines();
}

TEST(SupervisorProof, AProbeThatWasLostWithTheRouterIsMadeAgain) {
  Harness h(1, 2);
  h.serve(2, 1);
  restart_first(h);
  h.die(Harness::router());
  h.pass_for(seconds(1));
  h.bring_up_router();
  h.answer_probe();  // of the one that had proved itself
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
}

TEST(SupervisorProof, WhoeverIsOnlyThereUnprovedDoesNotServe) {
  Harness h(1, 2);
  h.serve(2, 1);
  restart_first(h);
  h.die(Harness::worker(1, 0), SIGSEGV);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::warming);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

}  // namespace
}  // namespace plimsoll
