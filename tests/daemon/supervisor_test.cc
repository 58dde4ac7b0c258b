#include "daemon/supervisor.h"

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

TEST(Supervisor, StartsRanksAndRouterAndServesAfterAProbe) {
  Harness h;
  h.handle(Begin{});
  EXPECT_EQ(h.alive.size(), 3U);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::loading);

  h.hello(Harness::worker(0, 0));
  h.hello(Harness::worker(0, 1));
  const auto loads = h.sent<Load>(h.peer_of(Harness::worker(0, 0)));
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_EQ(loads[0].request_endpoint.rfind("ipc:///run/plimsoll/replica-0-", 0), 0U);
  EXPECT_EQ(h.sent<Load>(h.peer_of(Harness::worker(0, 1)))[0].request_endpoint, "");

  h.say(Harness::worker(0, 1), Loaded{});
  EXPECT_EQ(h.count_sent<Commit>(), 0U) << "before all ranks have loaded";
  h.say(Harness::worker(0, 0), Loaded{});
  EXPECT_EQ(h.count_sent<Commit>(), 2U);
  EXPECT_EQ(h.sent<Commit>(h.peer_of(Harness::worker(0, 1)))[0].kv_blocks, 77);

  h.bring_up_router();
  h.say(Harness::worker(0, 0), Ready{"cpu avx2", nullptr});
  EXPECT_EQ(h.count_sent<Probe>(), 0U) << "before all ranks are ready";
  h.say(Harness::worker(0, 1), Ready{"cpu avx2", nullptr});
  EXPECT_EQ(h.supervisor().state(), DeploymentState::warming);
  const auto tables = h.sent<Replicas>(h.peer_of(Harness::router()));
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables.back().replicas[0].state, "proving");
  EXPECT_EQ(tables.back().replicas[0].endpoint, loads[0].request_endpoint);

  EXPECT_FALSE(h.was_ready) << "before a real request was answered";
  h.answer_probe();
  EXPECT_TRUE(h.was_ready);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.sent<Replicas>(h.peer_of(Harness::router())).back().deployment_state, "serving");
  EXPECT_EQ(h.count_logged("serving small at http://127.0.0.1:8000"), 1U);
}

TEST(Supervisor, APlanThatDoesNotFitIsRefusedBeforeAnythingIsStarted) {
  Harness h;
  h.plan_error = does_not_fit("weights need 5 GiB of 4 GiB");
  h.handle(Begin{});
  EXPECT_TRUE(h.alive.empty());
  EXPECT_EQ(h.binds, 0);
  EXPECT_EQ(h.exit_code, 3);
  EXPECT_EQ(h.count_logged("weights need 5 GiB"), 1U);
}

TEST(Supervisor, ATakenPortIsReportedBeforeAnythingIsStarted) {
  Harness h;
  h.bind_error = unavailable("listen on 127.0.0.1 port 8000: process 7 (nginx) has it");
  h.handle(Begin{});
  EXPECT_TRUE(h.alive.empty());
  EXPECT_EQ(h.exit_code, 75);
  EXPECT_EQ(h.count_logged("nginx"), 1U);
}

TEST(Supervisor, WithoutAModelItIsReadyAndIdle) {
  Harness h(1, 1, "");
  h.handle(Begin{});
  for (int i = 0; i < 3; ++i) h.handle(Received{"stranger", Loaded{}});
  EXPECT_EQ(h.count_logged("dropped a 'loaded' of an unknown process"), 1U) << h.all_lines();
  EXPECT_TRUE(h.was_ready);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::stopped);
  h.command("start", Json::object({{"options", Json::object()}}));
  ASSERT_EQ(h.replies.size(), 1U);
  EXPECT_EQ(h.replies[0].exit_code, 78);
  EXPECT_NE(h.replies[0].message.find("--model"), std::string::npos);
}

TEST(Supervisor, ADeathEndsTheCohortWithOneCauseAndStartsItAgain) {
  Harness h(3);
  h.serve(1, 3);
  h.die(Harness::worker(0, 1), SIGSEGV);
  ASSERT_EQ(h.aborts.size(), 1U) << "the peers must leave their collectives at once";
  EXPECT_EQ(h.aborts[0].reason, "rank 1 of replica 0 was killed by SIGSEGV");
  EXPECT_EQ(h.sent<Replicas>(h.peer_of(Harness::router())).back().replicas[0].state, "restarting");
  EXPECT_NE(h.supervisor().state(), DeploymentState::serving);
  // The echoes of the abort.
  h.say(Harness::worker(0, 0), Fault{"unavailable", "all_reduce: rank 1 of replica 0 was killed"});
  h.end(Harness::worker(0, 0), {false, 75});
  EXPECT_EQ(h.count_logged("replica 0"), 0U) << "one rank is still there";
  h.end(Harness::worker(0, 2), {false, 75});
  h.pass(milliseconds(60));  // its last words did not come
  EXPECT_EQ(h.count_logged("replica 0:"), 1U);
  EXPECT_EQ(h.count_logged("was killed by SIGSEGV; 2 peers left with it"), 1U) << h.all_lines();
  EXPECT_TRUE(h.segments.empty());

  EXPECT_TRUE(h.pass(milliseconds(300)));  // the first retry comes soon
  EXPECT_TRUE(h.find(Harness::worker(0, 2)));
  h.bring_up(0, 3);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_EQ(h.supervisor().last_fault()->rank, 1);
}

TEST(Supervisor, PeersThatDoNotLeaveAreKilled) {
  Harness h;
  h.serve();
  h.die(Harness::worker(0, 0));
  const ChildId peer = *h.find(Harness::worker(0, 1));
  EXPECT_EQ(h.alive[peer].signal, 0);
  h.pass(seconds(1));
  EXPECT_EQ(h.alive[peer].signal, SIGKILL);
  h.let_leave();
  EXPECT_EQ(h.count_logged("rank 0 (pid"), 1U);
}

TEST(Supervisor, TheSecondDeathOfACohortIsNoSecondCause) {
  Harness h;
  h.serve();
  h.die(Harness::worker(0, 0), SIGABRT);
  h.die(Harness::worker(0, 1), SIGSEGV);
  EXPECT_EQ(h.count_logged("replica 0:"), 1U);
  EXPECT_EQ(h.count_logged("SIGABRT; 1 peer left with it"), 1U) << h.all_lines();
  EXPECT_EQ(h.aborts.size(), 1U);
}

TEST(Supervisor, ALateFaultIsStillTheCause) {
  Harness h(1);
  h.serve(1, 1);
  const std::string peer = h.peer_of(Harness::worker(0, 0));
  h.end(Harness::worker(0, 0), {false, 1});
  EXPECT_EQ(h.count_logged("replica 0:"), 0U);
  h.handle(Received{peer, Fault{"internal", "the arena is exhausted"}});
  EXPECT_EQ(h.count_logged("failed: the arena is exhausted"), 1U) << h.all_lines();
}

TEST(Supervisor, OtherReplicasKeepServing) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.die(Harness::worker(1, 0));
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  const auto table = h.sent<Replicas>(h.peer_of(Harness::router())).back();
  EXPECT_EQ(table.replicas[0].state, "ready");
  EXPECT_EQ(table.replicas[1].state, "restarting");
  EXPECT_EQ(table.replicas[1].endpoint, "");
  h.pass(seconds(1));
  h.bring_up(1, 1);
  h.answer_probe();
  EXPECT_EQ(h.sent<Replicas>(h.peer_of(Harness::router())).back().replicas[1].state, "ready");
}

TEST(Supervisor, ADeathInEachPhaseOfAStartIsRetried) {
  for (int phase = 0; phase < 4; ++phase) {
    Harness h;
    h.handle(Begin{});
    h.bring_up_router();
    if (phase >= 1) h.hello(Harness::worker(0, 0));
    if (phase >= 1) h.hello(Harness::worker(0, 1));
    if (phase >= 2) h.say(Harness::worker(0, 1), Loaded{});
    if (phase >= 3) h.say(Harness::worker(0, 0), Loaded{});
    h.die(Harness::worker(0, 1));
    h.pass(seconds(1));
    h.let_leave();
    EXPECT_TRUE(h.pass(seconds(1))) << phase;
    h.bring_up(0);
    h.answer_probe();
    EXPECT_EQ(h.supervisor().state(), DeploymentState::serving) << phase;
  }
}

TEST(Supervisor, APermanentFailureOfAStartEndsItAtOnce) {
  Harness h;
  h.handle(Begin{});
  h.bring_up_router();
  h.hello(Harness::worker(0, 0));
  h.say(Harness::worker(0, 0), Fault{"corrupt", "tensor blk.3 is cut short"});
  h.end(Harness::worker(0, 0), {false, 78});
  h.end(Harness::worker(0, 1), {true, SIGKILL});
  h.let_leave();
  EXPECT_TRUE(h.alive.empty());
  EXPECT_EQ(h.exit_code, 78);
  EXPECT_EQ(h.count_logged("tensor blk.3 is cut short; 1 peer left with it; it is not started"), 1U)
      << h.all_lines();
}

TEST(Supervisor, AStartThatNeverGetsReadyIsGivenUp) {
  Harness h(1);
  h.handle(Begin{});
  h.bring_up_router();
  for (int i = 0; i < 5 && !h.exit_code; ++i) {
    ASSERT_TRUE(h.find(Harness::worker(0, 0))) << i;
    h.die(Harness::worker(0, 0), SIGSEGV);
    h.let_leave();
    if (!h.exit_code) h.pass(seconds(20));
  }
  EXPECT_EQ(h.exit_code, 75);
  EXPECT_TRUE(h.alive.empty());
}

TEST(Supervisor, AProgramThatCannotBeStartedIsAFailedStart) {
  Harness h;
  h.spawn_error = not_found("start /usr/bin/plimsoll-worker: No such file or directory");
  h.handle(Begin{});
  EXPECT_EQ(h.exit_code, 78);
  EXPECT_TRUE(h.segments.empty());
}

TEST(Supervisor, TheRoutersDeathLeavesWorkersAloneAndItComesBack) {
  Harness h;
  h.serve();
  const std::size_t tables = h.count_sent<Replicas>();
  h.die(Harness::router(), SIGSEGV);
  EXPECT_EQ(h.alive.size(), 2U);
  EXPECT_TRUE(h.is_listening) << "clients wait in the queue";
  h.pass(seconds(1));
  h.bring_up_router();
  EXPECT_GT(h.count_sent<Replicas>(), tables) << "the new router knows no replicas";
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(Supervisor, StopDrainsTheRouterFirstThenTheWorkersAndLeavesNothing) {
  Harness h;
  h.serve();
  const std::string router = h.peer_of(Harness::router());
  h.handle(StopSignal{});
  EXPECT_EQ(h.supervisor().state(), DeploymentState::draining);
  ASSERT_EQ(h.sent<Drain>(router).size(), 1U);
  EXPECT_EQ(h.sent<Drain>(router)[0].deadline_ms, 10'000);
  EXPECT_EQ(h.stop_extension, seconds(20));
  EXPECT_EQ(h.count_sent<Drain>(), 1U) << "the workers still have requests to finish";
  h.let_leave();
  EXPECT_EQ(h.count_sent<Drain>(), 3U);
  EXPECT_TRUE(h.alive.empty());
  EXPECT_TRUE(h.segments.empty());
  EXPECT_FALSE(h.is_listening);
  EXPECT_EQ(h.exit_code, 0);
}

// Whoever lost its connection may have lost the message with it.
TEST(Supervisor, WhoSaysHelloAgainWhileItDrainsIsToldAgain) {
  Harness h;
  h.serve();
  h.handle(StopSignal{});
  h.pass_for(milliseconds(900));
  const std::size_t before = h.count_sent<Drain>();
  h.hello(*h.find(Harness::router()));
  ASSERT_EQ(h.count_sent<Drain>(), before + 1);
  EXPECT_EQ(h.sent<Drain>(h.peer_of(Harness::router())).back().deadline_ms, 9'100);
  h.let_leave();
  EXPECT_EQ(h.exit_code, 0);
}

TEST(Supervisor, WhoDoesNotDrainIsTerminatedThenKilled) {
  Harness h;
  h.serve();
  h.handle(StopSignal{});
  const ChildId router = *h.find(Harness::router());
  for (int i = 0; i < 11; ++i) {
    h.pass_for(milliseconds(900));
    h.pong(0, 2, Pong{});
  }
  EXPECT_EQ(h.alive[router].signal, 0);
  h.pass_for(milliseconds(200));
  EXPECT_EQ(h.alive[router].signal, 0) << "it tells each stream that its time is over";
  h.pass_for(milliseconds(500));
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGTERM);
  h.pass_for(seconds(2));
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGKILL);
  h.let_leave();
  EXPECT_EQ(h.exit_code, 0);
}

TEST(Supervisor, ACtrlCAndTheSignalOfTheStarterAreOneWish) {
  Harness h;
  h.serve();
  h.handle(StopSignal{});
  h.pass_for(milliseconds(5));
  h.handle(StopSignal{});
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, 0);
}

TEST(Supervisor, ASignalThatJoinsAStopOfAllForcesNothing) {
  Harness h;
  h.serve();
  h.command("stop", Json::object({{"all", true}}));
  h.pass_for(seconds(2));
  h.handle(StopSignal{});
  h.pass_for(milliseconds(5));
  h.handle(StopSignal{});
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, 0);
  h.pass_for(seconds(1));
  h.handle(StopSignal{});
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGKILL);
}

TEST(Supervisor, ADeathWhileDrainingIsToldToTheRouterAtOnce) {
  Harness h(1, 2);
  h.serve(2, 1);
  const std::string router = h.peer_of(Harness::router());
  h.handle(StopSignal{});
  const std::size_t tables = h.sent<Replicas>(router).size();
  h.die(Harness::worker(1, 0));
  const auto told = h.sent<Replicas>(router);
  ASSERT_GT(told.size(), tables);
  EXPECT_EQ(told.back().replicas[0].state, "ready");
  EXPECT_NE(told.back().replicas[1].state, "ready");
  EXPECT_EQ(told.back().replicas[1].endpoint, "");
}

TEST(Supervisor, AReplicaThatDiesWhileDrainingComesBackToFinishItsRequests) {
  Harness h(1, 2);
  h.serve(2, 1);
  h.handle(StopSignal{});
  h.die(Harness::worker(1, 0));
  h.pass_for(seconds(1));
  h.bring_up(1, 1);
  EXPECT_EQ(h.table(), "0 ready, 1 ready");
}

TEST(Supervisor, AFailureForGoodLetsTheRouterTellItsClients) {
  Harness h(1);
  h.serve(1, 1);
  const ChildId router = *h.find(Harness::router());
  const std::string peer = h.peer_of(router);
  h.say(Harness::worker(0, 0), Fault{"corrupt", "the file was cut short"});
  h.end(Harness::worker(0, 0), {false, 78});
  ASSERT_EQ(h.sent<Drain>(peer).size(), 1U);
  EXPECT_EQ(h.sent<Drain>(peer)[0].deadline_ms, 0);
  EXPECT_EQ(h.alive[router].signal, 0);
  h.pass_for(seconds(2));
  EXPECT_EQ(h.alive[router].signal, SIGKILL) << "it had its time";
  h.let_leave();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::failed);
}

TEST(Supervisor, ProgressThatGoesBackIsTheNextAttempts) {
  Harness h(1);
  h.handle(Begin{});
  h.hello(Harness::worker(0, 0));
  h.say(Harness::worker(0, 0), Progress{"loading", 60, 100});
  EXPECT_EQ(h.count_logged("loading: 60 %"), 1U);
  h.die(Harness::worker(0, 0));
  h.pass(seconds(1));
  h.hello(Harness::worker(0, 0));
  h.say(Harness::worker(0, 0), Progress{"loading", 10, 100});
  h.say(Harness::worker(0, 0), Progress{"loading", 30, 100});
  EXPECT_EQ(h.count_logged("loading: 10 %"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_logged("loading: 30 %"), 1U) << h.all_lines();
}

TEST(Supervisor, ASecondSignalForces) {
  Harness h;
  h.serve();
  h.handle(StopSignal{});
  h.pass_for(seconds(1));
  h.handle(StopSignal{});
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGKILL);
  h.let_leave();
  EXPECT_EQ(h.exit_code, 0);
}

TEST(Supervisor, AStopDuringLoadWaitsForNobody) {
  Harness h;
  h.handle(Begin{});
  h.hello(Harness::worker(0, 0));
  h.handle(StopSignal{});
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGTERM);
  h.pass(seconds(2));
  for (const auto& [id, fake] : h.alive) EXPECT_EQ(fake.signal, SIGKILL);
  h.let_leave();
  EXPECT_EQ(h.exit_code, 0);
}

TEST(Supervisor, ALoadWithoutProgressIsKilledAndNamed) {
  Harness h;
  h.handle(Begin{});
  h.bring_up_router();
  h.hello(Harness::worker(0, 0));
  h.hello(Harness::worker(0, 1));
  h.say(Harness::worker(0, 0), Progress{"loading", 10, 100});
  h.pass_for(seconds(590));
  h.say(Harness::worker(0, 0), Progress{"loading", 20, 100});
  h.pass_for(seconds(15));
  h.let_leave();
  EXPECT_EQ(h.count_logged("rank 1 (pid"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_logged("made no progress"), 1U) << h.all_lines();
}

TEST(Supervisor, AnIdleWorkerThatAnswersPingsIsLeftAlone) {
  Harness h;
  h.serve();
  for (int i = 0; i < 120; ++i) {
    h.pass_for(seconds(1));
    h.pong(0, 2, Pong{.sequence = i});
  }
  EXPECT_GT(h.count_sent<Ping>(), 200U);
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(Supervisor, ASilentRankIsKilledAndNamed) {
  Harness h;
  h.serve();
  for (int i = 0; i < 30 && h.aborts.empty(); ++i) {
    h.pass_for(milliseconds(500));
    if (h.aborts.empty()) h.say(Harness::worker(0, 0), Pong{});
  }
  h.let_leave();
  EXPECT_EQ(h.count_logged("rank 1 (pid"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_logged("--stall-timeout"), 1U) << h.all_lines();
}

TEST(Supervisor, WorkWithoutStepsIsAHangAlthoughPingsAreAnswered) {
  Harness h(1);
  h.serve(1, 1);
  for (int i = 0; i < 60 && h.aborts.empty(); ++i) {
    h.pass_for(milliseconds(500));
    if (h.aborts.empty()) h.pong(0, 1, Pong{.steps = 7, .running = 1, .waiting = 2});
  }
  h.let_leave();
  EXPECT_EQ(h.count_logged("3 requests wait and no step has finished"), 1U) << h.all_lines();
}

TEST(Supervisor, APauseOfTheDaemonItselfIsNobodysHang) {
  Harness h;
  h.serve();
  h.now += seconds(100);
  h.handle(Tick{});
  EXPECT_TRUE(h.aborts.empty());
  h.pong(0, 2, Pong{});
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
}

TEST(Supervisor, AHelloOfAStrangerChangesNothing) {
  Harness h;
  h.handle(Begin{});
  Hello hello;
  hello.role = "worker";
  hello.instance = "instance";
  hello.pid = 1;
  h.handle(Received{"stranger", hello});
  hello.replica = 1'000'000;
  h.handle(Received{"stranger", hello});
  hello.instance = "another";
  h.handle(Received{"stranger", hello});
  h.handle(Received{"stranger", Loaded{}});
  EXPECT_EQ(h.count_logged("refused a hello"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_logged("unknown process"), 0U) << "one warning a peer";
  h.handle(Received{"another", Loaded{}});
  EXPECT_EQ(h.count_logged("unknown process"), 1U) << h.all_lines();
  EXPECT_EQ(h.count_sent<Load>(), 0U);
  EXPECT_EQ(h.alive.size(), 3U);
}

TEST(Supervisor, AProbeThatFailsForGoodEndsTheStart) {
  Harness h(1);
  h.handle(Begin{});
  h.bring_up_router();
  h.bring_up(0, 1);
  for (int i = 0; i < 5; ++i) {
    h.answer_probe(false);
    h.pass(milliseconds(600));
  }
  h.let_leave();
  EXPECT_FALSE(h.was_ready);
  EXPECT_EQ(h.exit_code, 75);
}

TEST(Supervisor, DamagedWeightsThatATestRequestFindsAreNoReasonToTryAgain) {
  Harness h(1);
  h.handle(Begin{});
  h.bring_up_router();
  h.bring_up(0, 1);
  for (int i = 0; i < 5; ++i) {
    h.answer_probe(false, "corrupt");
    h.pass(milliseconds(600));
  }
  h.let_leave();
  EXPECT_FALSE(h.was_ready);
  EXPECT_EQ(h.exit_code, 78);
}

TEST(Supervisor, ReadyIsSaidOnceInALife) {
  Harness h;
  h.serve();
  h.was_ready = false;
  h.die(Harness::worker(0, 0));
  h.pass(seconds(1));
  h.let_leave();
  h.pass(seconds(1));
  h.bring_up(0);
  h.answer_probe();
  EXPECT_EQ(h.supervisor().state(), DeploymentState::serving);
  EXPECT_FALSE(h.was_ready);
}

}  // namespace
}  // namespace plimsoll
