// What daemon/supervisor_devices.cc, daemon/deployment_devices.cc and daemon/cohort_devices.cc
// decide.

#include <gtest/gtest.h>

#include "daemon/status_report.h"
#include "daemon/supervisor.h"
#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(SupervisorDevices, ADeviceThatFailsTakesItsReplicaOutAndTheOthersServe) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.break_device(1);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << "the other one serves";
  h.let_leave();
  EXPECT_EQ(h.table(), "0 ready");
  EXPECT_EQ(h.count_logged("device GPU-1 (small GPU): Xid 79: it has fallen off the bus; it needs "
                           "reset"),
            1U);
  EXPECT_EQ(h.count_logged("rank 0 (pid 4002) has lost its device GPU-1"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_logged("1 of 2 replicas go on"), 1U);
  const std::size_t lines = h.lines.size();
  h.pass_for(seconds(5));
  EXPECT_FALSE(h.find(Harness::worker(1, 0))) << "it is not tried again";
  EXPECT_EQ(h.lines.size(), lines);
  const Json status = status_json(h.supervisor(), h.now);
  ASSERT_EQ(status.find("quarantine")->as_array().size(), 1U);
  EXPECT_EQ(status.find("quarantine")->as_array()[0].find("device")->as_string(), "GPU-1");
}

TEST(SupervisorDevices, ARestartUsesItAgain) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.break_device(1);
  h.let_leave();
  h.plan_error = unavailable("the driver has lost GPU 1");
  h.restart("auto");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.supervisor().quarantined().size(), 1U) << "it goes on as it was";
  h.plan_error.reset();
  h.replies.clear();
  h.restart("auto");
  EXPECT_TRUE(h.supervisor().quarantined().empty());
  EXPECT_EQ(h.count_logged("by the path hold"), 1U) << "only one replica runs";
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

TEST(SupervisorDevices, ARestartThatFailsDoesNotUseItAfterAll) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.break_device(1);
  h.let_leave();
  h.restart("hold");
  h.let_leave();
  ASSERT_TRUE(h.find(Harness::worker(1, 0)));
  h.say(Harness::worker(1, 0), Fault{"unavailable", "the GPU does not answer"});
  h.end(Harness::worker(1, 0), {false, 75});
  for (int i = 0; i < 40 && h.replies.empty(); ++i) {
    h.let_leave();
    if (h.find(Harness::worker(0, 0))) h.bring_up(0, 1);
    if (h.last_probe != 0) h.answer_probe();
    h.pass(seconds(1));
  }
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_NE(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.table(), "0 ready");
}

TEST(SupervisorDevices, ARestartThatIsRefusedLeavesTheQuarantineAsItIs) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.break_device(1);
  h.let_leave();
  h.restart("beside");
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_NE(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.count_logged("used again"), 0U);
}

TEST(SupervisorDevices, WhatFailsDuringARestartIsNotReleasedByIt) {
  Harness h(1, 2);
  h.use_devices(4);
  h.serve(2, 1);
  h.break_device(3);
  h.restart("restart");
  EXPECT_TRUE(h.supervisor().quarantined().empty());
  h.break_device(1);  // while what runs ends
  h.let_leave();
  ASSERT_TRUE(h.find(Harness::worker(1, 0))) << h.all_lines();
  ASSERT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.supervisor().quarantined()[0].uuid, "GPU-1");
  EXPECT_EQ(h.supervisor().deployment()->find_cohort(1)->device_of(0), "GPU-2");
  h.bring_up_router();
  h.load(0, 1);
  h.load(1, 1);
  h.become_ready(0, 1);
  h.become_ready(1, 1);
  h.answer_probe();
  for (int i = 0; i < 40 && h.replies.empty(); ++i) h.pass(seconds(1));
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 0) << h.replies[0].message;
  EXPECT_EQ(h.supervisor().quarantined().size(), 1U);
}

TEST(SupervisorDevices, ASpareDeviceTakesItsPlace) {
  Harness h(1, 2);
  h.use_devices(3);
  h.serve(2, 1);
  h.break_device(0);
  h.let_leave();
  ASSERT_TRUE(h.find(Harness::worker(0, 0)));
  EXPECT_EQ(h.supervisor().deployment()->find_cohort(0)->device_of(0), "GPU-2");
  EXPECT_EQ(h.supervisor().deployment()->find_cohort(1)->device_of(0), "GPU-1");
  h.bring_up(0, 1);
  h.answer_probe();
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
  EXPECT_EQ(h.count_logged("replica 0: starts again on GPU-2"), 1U);
  // Planned anew, each comes to another place: not one after the other.
  h.reconfigure("threads", "3");
  EXPECT_EQ(h.count_logged("by the path hold"), 1U) << h.all_lines();
}

TEST(SupervisorDevices, TheLastReplicaIsPlannedAnewAndTheRouterStays) {
  Harness h(2, 2);
  h.use_devices(4);
  h.serve(2, 2);
  const std::int64_t router = h.supervisor().deployment()->router().pid();
  h.break_device(0);
  h.let_leave();
  EXPECT_EQ(h.table(), "1 ready");
  for (int i = 1; i <= 3; ++i) {
    h.pass_for(seconds(1));
    h.pong(1, 2, Pong{.sequence = i, .steps = 100 * i, .running = 4, .generated_tokens = 400 * i});
  }
  h.pass_for(milliseconds(1));
  ASSERT_GT(h.records[1].tokens_per_second, 0);
  h.break_device(3);
  h.let_leave();
  EXPECT_EQ(h.records[1].tokens_per_second, 0) << "of two replicas, and it goes on with one";
  // GPU-1 and GPU-2 are left, of two replicas.
  ASSERT_TRUE(h.find(Harness::worker(0, 1))) << h.all_lines();
  EXPECT_EQ(h.supervisor().deployment()->find_cohort(0)->device_of(0), "GPU-1");
  EXPECT_EQ(h.supervisor().deployment()->find_cohort(0)->device_of(1), "GPU-2");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);
  h.bring_up(0, 2);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.supervisor().deployment()->router().pid(), router);
  EXPECT_EQ(h.supervisor().options().values.dp, 2) << "what was wished for stays";
}

TEST(SupervisorDevices, WhereNotEvenOneReplicaFitsItFailsOnceAndSaysWhatWouldWork) {
  Harness h(2, 1);
  h.use_devices(2);
  h.serve(1, 2);
  h.break_device(1);
  for (int i = 0; i < 10; ++i) {
    h.let_leave();
    h.pass(seconds(1));
  }
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
  EXPECT_EQ(h.count_logged("failed: devices: one replica needs 2, and 1 is left"), 1U);
  EXPECT_NE(h.supervisor().reason().find("or serve with tp 1"), std::string::npos);
  EXPECT_FALSE(h.exit_code);
  h.restart("auto");
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);
}

TEST(SupervisorDevices, ADeviceThatFailsWhileLoadingIsDoneWithout) {
  Harness h(1, 2);
  h.use_devices(2);
  h.handle(Begin{});
  h.bring_up_router();
  h.break_device(0);
  h.let_leave();
  h.load(1, 1);
  h.become_ready(1, 1);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.table(), "1 ready");
}

TEST(SupervisorDevices, WhatADriverSaysAfterTheDeathStopsTheNextStart) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.die(Harness::worker(1, 0), SIGABRT);
  h.break_device(1);
  h.pass_for(seconds(5));
  EXPECT_FALSE(h.find(Harness::worker(1, 0)));
  EXPECT_EQ(h.table(), "0 ready");
}

TEST(SupervisorDevices, ADyingReplicaLearnsThatItWasTheDevice) {
  Harness h(2, 1);
  h.use_devices(2);
  h.serve(1, 2);
  h.handle(ChildDying{*h.find(Harness::worker(0, 1))});
  h.break_device(1);
  h.pass(seconds(1));  // whoever has not left is killed
  h.let_leave();
  EXPECT_EQ(h.count_logged("rank 1 (pid 4002) has lost its device GPU-1: Xid 79: it has fallen off "
                           "the bus; 1 peer left with it; it is not started again"),
            1U)
      << h.all_lines();
}

TEST(SupervisorDevices, AChangeThatNeedsItIsTakenBackAndWhatWasThereGoesOnWithoutIt) {
  Harness h(1, 1);
  h.use_devices(2);
  h.serve(1, 1);
  h.memory_available = 10 * kGiB;
  h.reconfigure("threads", "3", "hold");
  h.let_leave();
  ASSERT_TRUE(h.find(Harness::worker(0, 0)));
  h.break_device(0);  // where the new one loads, and the old one was
  for (int i = 0; i < 40 && h.replies.empty(); ++i) {
    h.let_leave();
    if (h.find(Harness::worker(0, 0))) h.bring_up(0, 1);
    if (h.last_probe != 0) h.answer_probe();
    h.pass(seconds(1));
  }
  ASSERT_EQ(h.replies.size(), 1U) << h.all_lines();
  EXPECT_NE(h.replies[0].exit_code, 0);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << h.all_lines();
  EXPECT_EQ(h.supervisor().deployment()->cohorts()[0].device_of(0), "GPU-1");
}

TEST(SupervisorDevices, AProcessThatIsStuckInItsDriverTakesItsDeviceOut) {
  Harness h(1, 2);
  h.use_devices(2);
  h.serve(2, 1);
  h.process_letter = 'D';
  h.alive.at(*h.find(Harness::worker(1, 0))).is_stuck = true;
  h.handle(ChildDying{*h.find(Harness::worker(1, 0))});
  const ChildId stuck = *h.find(Harness::worker(1, 0));
  h.pass_for(seconds(9));
  h.pong(0, 1, Pong{});
  EXPECT_TRUE(h.supervisor().quarantined().empty()) << "it may only be slow";
  h.pass_for(seconds(3));
  EXPECT_TRUE(h.abandoned.contains(stuck));
  ASSERT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.supervisor().quarantined()[0].uuid, "GPU-1");
  EXPECT_EQ(h.count_logged("it is stuck in the kernel, as a rule in a driver; its device (GPU-1) "
                           "needs reset"),
            1U)
      << h.all_lines();
  EXPECT_EQ(h.table(), "0 ready");
  h.handle(ChildExited{stuck, {true, SIGKILL}});  // after all
  EXPECT_EQ(h.table(), "0 ready");
}

TEST(SupervisorDevices, AChangeDoesNotWaitForeverForAReplicaThatIsStuck) {
  Harness h(1, 1);
  h.use_devices(2);
  h.serve(1, 1);
  h.process_letter = 'D';
  const ChildId stuck = *h.find(Harness::worker(0, 0));
  h.alive.at(stuck).is_stuck = true;
  h.restart("hold");
  for (int i = 0; i < 120 && h.replies.empty(); ++i) {
    h.let_leave();
    if (h.find(Harness::worker(0, 0)) && h.abandoned.contains(stuck)) h.bring_up(0, 1);
    if (h.last_probe != 0) h.answer_probe();
    h.pass(seconds(1));
  }
  EXPECT_TRUE(h.abandoned.contains(stuck));
  ASSERT_EQ(h.replies.size(), 1U) << h.all_lines();
  ASSERT_EQ(h.supervisor().quarantined().size(), 1U);
  EXPECT_EQ(h.supervisor().quarantined()[0].uuid, "GPU-0");
  // What comes in its place would be on the same device: it is refused, and nothing is watched.
  EXPECT_EQ(h.count_logged("it is watched"), 0U) << h.all_lines();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << h.all_lines();
  EXPECT_EQ(h.supervisor().deployment()->cohorts()[0].device_of(0), "GPU-1");
}

TEST(SupervisorDevices, AProcessThatIsOnlySlowToEndIsWaitedFor) {
  Harness h(1, 1);
  h.use_devices(1);
  h.serve(1, 1);
  h.process_letter = 'R';
  h.alive.at(*h.find(Harness::worker(0, 0))).is_stuck = true;
  h.handle(ChildDying{*h.find(Harness::worker(0, 0))});
  h.pass_for(seconds(35));
  EXPECT_TRUE(h.supervisor().quarantined().empty());
  EXPECT_EQ(h.count_logged("has not ended"), 1U) << "said once";
  h.die(Harness::worker(0, 0));
  h.pass_for(seconds(1));
  EXPECT_TRUE(h.find(Harness::worker(0, 0)));
}

TEST(SupervisorDevices, ADiskThatHangsIsNoFaultOfTheDevice) {
  Harness h(1, 1);
  h.use_devices(1);
  h.serve(1, 1);
  h.process_letter = 'D';
  h.wait_channel = "folio_wait_bit_common";
  h.alive.at(*h.find(Harness::worker(0, 0))).is_stuck = true;
  h.handle(ChildDying{*h.find(Harness::worker(0, 0))});
  h.pass_for(seconds(35));
  EXPECT_TRUE(h.supervisor().quarantined().empty());
  EXPECT_TRUE(h.abandoned.empty());
  EXPECT_EQ(h.count_logged("(in folio_wait_bit_common), where it waits for a file"), 1U)
      << h.all_lines();
  h.wait_channel = "nv_wait";  // then it gets on, and is stuck elsewhere
  h.pass_for(seconds(9));
  EXPECT_TRUE(h.supervisor().quarantined().empty()) << "seen there once";
  h.pass_for(seconds(15));
  EXPECT_EQ(h.supervisor().quarantined().size(), 1U);
}

TEST(SupervisorDevices, AStopLeavesBehindWhatIsStuck) {
  Harness h(1, 1);
  h.serve(1, 1);
  h.process_letter = 'D';
  h.alive.at(*h.find(Harness::worker(0, 0))).is_stuck = true;
  h.handle(StopSignal{});
  for (int i = 0; i < 200 && !h.exit_code; ++i) {
    h.let_leave();
    h.pass(seconds(1));
  }
  EXPECT_EQ(h.exit_code, 0);
  EXPECT_EQ(h.count_logged("it is left behind"), 1U);
}

}  // namespace
}  // namespace plimsoll
