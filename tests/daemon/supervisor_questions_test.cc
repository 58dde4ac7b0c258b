// What a supervisor does while the machine takes its time to say what there is.

#include <gtest/gtest.h>

#include "daemon/supervisor.h"
#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorQuestions, AStopDoesNotWaitForAPlanAndTheAnswerIsDropped) {
  Harness h(1, 1);
  h.serve(1, 1);
  h.command("stop");
  h.let_leave();
  ASSERT_EQ(h.supervisor().state(), DeploymentState::stopped);
  h.is_slow = true;
  h.replies.clear();
  h.command("start");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::planned);
  h.command("stop");
  ASSERT_EQ(h.replies.size(), 2U) << "of the start, and of the stop";
  EXPECT_NE(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.replies[1].exit_code, 0) << h.replies[1].message;
  h.answer();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::stopped);
  EXPECT_TRUE(h.alive.empty());
}

TEST(SupervisorQuestions, ASignalDoesNotWaitForThePlanOfTheFirstStart) {
  Harness h(1, 1);
  h.is_slow = true;
  h.handle(Begin{});
  h.handle(StopSignal{});
  EXPECT_TRUE(h.exit_code);
}

TEST(SupervisorQuestions, AnAnswerToAFormerQuestionIsNotTakenForThePresentOne) {
  Harness h(1, 1);
  h.serve(1, 1);
  h.command("stop");
  h.let_leave();
  h.is_slow = true;
  h.command("start");
  h.command("stop");
  h.replies.clear();
  h.refusal = does_not_fit("there is less now");
  h.command("start");
  ASSERT_EQ(h.answers.size(), 2U);
  h.answer();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::planned);
  h.answer();
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 3);
}

TEST(SupervisorQuestions, WhileADeviceIsLookedForTheOthersServe) {
  Harness h(1, 2);
  h.use_devices(3);
  h.serve(2, 1);
  h.is_slow = true;
  h.break_device(0);
  h.let_leave();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  h.command("status");
  EXPECT_EQ(h.replies.size(), 1U);
  h.answer();
  ASSERT_TRUE(h.find(Harness::worker(0, 0))) << "on the spare one";
  EXPECT_EQ(h.count_logged("replica 0: starts again on GPU-2"), 1U) << h.all_lines();
}

TEST(SupervisorQuestions, WhereMeanwhileAllAreLostItIsPlannedAnewAndRequestsWait) {
  Harness h(1, 2);
  h.use_devices(3);
  h.serve(2, 1);
  h.is_slow = true;
  h.break_device(0);
  h.let_leave();
  h.break_device(1);
  h.let_leave();
  h.break_device(2);
  ASSERT_EQ(h.answers.size(), 1U);
  h.answer();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading) << "it does not serve";
  ASSERT_EQ(h.answers.size(), 1U);
  h.answer();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::draining) << "nothing is left";
  h.let_leave();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
  EXPECT_EQ(h.count_logged("have them reset"), 1U) << h.all_lines();
}

TEST(SupervisorQuestions, ARouterThatDiesWhileAllIsPlannedAnewIsThereForIt) {
  Harness h(1, 1);
  h.use_devices(2);
  h.serve(1, 1);
  h.is_slow = true;
  h.break_device(0);
  h.let_leave();
  h.die(Harness::router());
  h.pass_for(seconds(2));
  EXPECT_TRUE(h.find(Harness::router()));
  h.answer();
  ASSERT_TRUE(h.find(Harness::worker(0, 0)));
  h.bring_up_router();
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(SupervisorQuestions, AChangeThatComesFirstMakesTheAnswerNeedless) {
  Harness h(1, 2);
  h.use_devices(4);
  h.serve(2, 1);
  h.is_slow = true;
  h.reconfigure("threads", "3", "hold");
  h.break_device(0);
  h.let_leave();
  ASSERT_EQ(h.answers.size(), 2U) << "a plan, and devices for what runs";
  h.answer();  // it is on the device that has failed meanwhile
  EXPECT_EQ(h.answers.size(), 2U) << "so it is asked for once more";
  std::swap(h.answers.front(), h.answers.back());
  h.answer();
  EXPECT_EQ(h.count_logged("by the path hold"), 1U) << h.all_lines();
  h.answer();
  EXPECT_EQ(h.count_logged("starts again on"), 0U);
  h.is_slow = false;
  for (int i = 0; i < 40 && h.replies.empty(); ++i) {
    for (std::int64_t replica = 0; replica < 2; ++replica) {
      if (h.find(Harness::worker(replica, 0))) h.bring_up(replica, 1);
    }
    if (h.last_probe != 0) h.answer_probe();
    h.let_leave();
    h.pass(seconds(1));
  }
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
}

TEST(SupervisorQuestions, WhatFailsWhileARestartIsPlannedIsNotReleasedByIt) {
  Harness h(1, 1);
  h.use_devices(3);
  h.serve(1, 1);
  h.break_device(2);
  h.is_slow = true;
  h.restart("restart");
  h.pass(milliseconds(10));
  h.break_device(1);
  h.answer();
  ASSERT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.supervisor().quarantined()[0].uuid, "GPU-1");
  EXPECT_EQ(h.count_logged("1 device in quarantine is used again"), 1U) << h.all_lines();
}

TEST(SupervisorQuestions, WhatWasUnderWayWhenAStopCameHasNotHappened) {
  Harness h(1, 1);
  h.serve(1, 1);
  const std::int64_t before = h.supervisor().generation();
  h.reconfigure("threads", "3", "hold");
  EXPECT_EQ(h.supervisor().generation(), before + 1);
  h.command("stop");
  h.let_leave();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::stopped);
  EXPECT_EQ(h.supervisor().generation(), before);
  EXPECT_EQ(h.records.at(before + 1).outcome, Outcome::stopped);
}

TEST(SupervisorQuestions, AFailedDeploymentThatStartsAgainIsNotCalledFailed) {
  Harness h(1, 1);
  h.serve(1, 1);
  h.command("stop");
  h.let_leave();
  h.refusal = does_not_fit("there is less now");
  h.command("start");
  ASSERT_EQ(h.supervisor().state(), DeploymentState::failed);
  EXPECT_EQ(h.supervisor().reason(), "there is less now");
  h.is_slow = true;
  h.command("start");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::planned);
  EXPECT_EQ(h.supervisor().reason(), "");
  h.answer();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
}

TEST(SupervisorQuestions, WhereTheDriverDoesNotSayWhatIsFreeThatIsWhyAReplicaIsLeftOut) {
  Harness h(1, 2);
  h.use_devices(3);
  h.serve(2, 1);
  h.is_slow = true;
  h.break_device(0);
  h.let_leave();
  ASSERT_EQ(h.answers.size(), 1U);
  std::get<DevicesFound>(h.answers.front()).devices = timed_out("it has not said for 60 s");
  h.answer();
  EXPECT_EQ(h.count_logged("replica 0: left out, since it has not said for 60 s: 1 of 2"), 1U)
      << h.all_lines();
}

// The listener goes as it does without a dry run, and with it what is kept for the next start.
TEST(SupervisorQuestions, WhatFailsDuringADryRunFailsByItselfAndTheDryRunIsAnswered) {
  for (const bool fits : {true, false}) {
    Harness h(1, 1);
    h.serve(1, 1);
    h.is_slow = true;
    if (!fits) h.refusal = does_not_fit("too much for a dry run");
    const Json pair = Json::array({"tp", "2"});
    h.command("reconfigure",
              Json::object({{"assignments", Json::array({pair})}, {"dry_run", true}}));
    ASSERT_EQ(h.answers.size(), 1U);
    h.say(Harness::router(), Fault{"invalid", "the router can't go on"});
    h.end(Harness::router(), {false, 78});
    h.let_leave();
    for (int i = 0; i < 20 && h.supervisor().state() != DeploymentState::failed; ++i) {
      h.pass(seconds(1));
      h.let_leave();
    }
    ASSERT_EQ(h.supervisor().state(), DeploymentState::failed) << h.all_lines();
    EXPECT_FALSE(h.is_listening);
    const std::string reason = h.supervisor().reason();
    h.answer();
    ASSERT_EQ(h.replies.size(), 1U);
    EXPECT_EQ(h.replies[0].exit_code, fits ? 0 : 3);
    EXPECT_EQ(h.supervisor().reason(), reason) << "it is what ran that has failed";
    EXPECT_EQ(*h.supervisor().operation_name(), '\0');
  }
}

}  // namespace
}  // namespace plimsoll
