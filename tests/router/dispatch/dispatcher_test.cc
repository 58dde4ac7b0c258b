#include "router/dispatch/dispatcher.h"

#include "tests/router/dispatch/dispatcher_harness.h"

namespace plimsoll {
namespace {

TEST_F(DispatcherTest, GoesToTheReplicaWithTheLeastOutstandingWork) {
  table({replica(0), replica(1)});
  submit(1), submit(2), submit(3, 500), submit(4), submit(5);
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {1, 2}, {0, 3}, {1, 4}, {1, 5}}));
}

TEST_F(DispatcherTest, OnlyReadyReplicasGetWork) {
  table({replica(0, "loading"), replica(1), replica(2, "draining")});
  submit(1), submit(2);
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 1}, {1, 2}}));
}

TEST_F(DispatcherTest, DeliversTokensAndForgetsWhatEnded) {
  table({replica(0)});
  submit(1);
  token(0, 1), token(0, 1, "stop"), token(0, 1);
  take();
  EXPECT_EQ(delivered_, (Ids{1, 1}));
  EXPECT_EQ(dispatcher_.open(), 0);
}

TEST_F(DispatcherTest, TokensOfAnotherReplicaAreNotOurs) {
  table({replica(0), replica(1)});
  submit(1);
  token(1, 1);
  token(7, 1);
  take();
  EXPECT_TRUE(delivered_.empty());
}

TEST_F(DispatcherTest, ALostRequestWithoutTokensMovesToAnotherReplica) {
  table({replica(0), replica(1)});
  submit(1);
  take();
  table({replica(0, "failed"), replica(1)});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 1}}));
  EXPECT_TRUE(failed_.empty());
}

TEST_F(DispatcherTest, ALostRequestWithTokensGoesOnAtOnceElsewhere) {
  table({replica(0), replica(1)});
  submit(1), submit(2, 9);
  token(0, 1), token(0, 1);
  take();
  table({replica(0, "restarting"), replica(1)});
  take();
  EXPECT_TRUE(failed_.empty());
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 1}}));
  EXPECT_EQ(generates_.at(1).emitted, (std::vector<std::int64_t>{9, 9}));
  EXPECT_EQ(resumed_, 1);
  token(1, 1, "length");
  take();
  EXPECT_EQ(delivered_, (Ids{1}));
  EXPECT_EQ(dispatcher_.open(), 1);
}

TEST_F(DispatcherTest, WordsOfALostReplicaAreNotThoseOfTheNext) {
  table({replica(0)});
  submit(1);
  token(0, 1);
  take();
  die_and_return(0, 1, false);
  TokenEvent stale;
  stale.id = 1;
  stale.tokens = {8};
  step(0, stale);
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}}));
  EXPECT_TRUE(delivered_.empty());
}

TEST_F(DispatcherTest, ARequestThatLosesItsReplicaTooOftenFails) {
  table({replica(0)});
  submit(1);
  for (std::int64_t incarnation = 1; incarnation <= 8; ++incarnation) {
    die_and_return(0, incarnation, false);
  }
  take();
  EXPECT_TRUE(failed_.empty());
  die_and_return(0, 9, false);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_NE(errors_[0].message.find("lost its replica 9 times"), std::string::npos);
}

// ---- poison ----

TEST_F(DispatcherTest, AfterTheSecondFaultSuspectsRunOneAtATime) {
  table({replica(0)});
  submit(1), submit(2), submit(3);
  die_and_return(0, 1, true);
  take();
  EXPECT_EQ(sent_.size(), 6U) << "once may be chance";
  die_and_return(0, 2, true);
  submit(4);
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}})) << "alone, and nothing new beside it";
  token(0, 1, "length");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 2}}));
  // The one that dies alone is at fault.
  die_and_return(0, 3, true);
  take();
  EXPECT_EQ(failed_, (Ids{2}));
  EXPECT_EQ(errors_[0].code, Code::internal);
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 3}}));
  token(0, 3, "length");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 4}})) << "then the others";
}

TEST_F(DispatcherTest, ASuspectThatIsPastItsDeathMakesRoomForTheNext) {
  table({replica(0)});
  submit(1), submit(2);
  die_and_return(0, 1, true);
  die_and_return(0, 2, true);
  take();
  for (int i = 0; i < 15; ++i) token(0, 1);
  take();
  EXPECT_TRUE(cancelled_.empty());
  token(0, 1);
  take();
  EXPECT_EQ(delivered_, (Ids{1}));
  EXPECT_EQ(cancelled_, (std::vector<Sent>{{0, 1}}));
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 2}}));
  token(0, 2, "length");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}}));
  EXPECT_EQ(generates_.at(1).emitted.size(), 16U);
}

TEST_F(DispatcherTest, KillsFromOutsideNeverRunAnythingAlone) {
  table({replica(0)});
  submit(1), submit(2);
  for (std::int64_t incarnation = 1; incarnation <= 4; ++incarnation) {
    take();
    die_and_return(0, incarnation, false);
    take();
    EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {0, 2}}));
  }
}

TEST_F(DispatcherTest, BesideTheReplicaForSuspectsOthersServe) {
  table({replica(0), replica(1)});
  submit(1), submit(2);  // one each
  take();
  // Both die of a fault, twice; each request is a suspect.
  for (std::int64_t incarnation = 1; incarnation <= 2; ++incarnation) {
    table({{0, "restarting", "", incarnation, incarnation, true},
           {1, "restarting", "", incarnation, incarnation, true}});
    take();
    if (incarnation == 2) break;
    table({{0, "ready", "ipc://x", 2, 1, true}, {1, "ready", "ipc://x", 2, 1, true}});
    take();
  }
  EXPECT_EQ(failed_, (Ids{1, 2})) << "each was alone";
  submit(3), submit(4), submit(5);
  table({{0, "ready", "ipc://x", 3, 2, true}, {1, "ready", "ipc://x", 3, 2, true}});
  take();
  EXPECT_EQ(sent_.size(), 3U);
}

TEST_F(DispatcherTest, ASecondDeathWaitsForItsCause) {
  table({replica(0), replica(1)});
  submit(1), submit(2, 100), submit(3);
  take();
  table({{0, "restarting", "", 1, 0}, replica(1)});
  table({{0, "restarting", "", 1, 1, true}, replica(1)});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 1}, {1, 3}}));
  table({{0, "ready", "ipc://x", 2, 1, true}, {1, "restarting", "", 1, 0}});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 2}})) << "those with one fault wait";
  table({{0, "ready", "ipc://x", 2, 1, true}, {1, "restarting", "", 1, 1, false}});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {0, 3}}));
}

TEST_F(DispatcherTest, AnErrorOfTheEngineFailsTheRequest) {
  table({replica(0)});
  submit(1);
  error(0, 1, Code::invalid);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_EQ(errors_[0].code, Code::invalid);
  EXPECT_EQ(errors_[0].message, "why");
}

TEST_F(DispatcherTest, AnUnavailableEngineIsTriedAgain) {
  table({replica(0), replica(1)});
  submit(1);
  take();
  error(0, 1, Code::unavailable);
  take();
  EXPECT_TRUE(sent_.empty()) << "not at once, or it would go in circles";
  dispatcher_.tick(time_);
  take();
  EXPECT_EQ(sent_.size(), 1U);
  EXPECT_TRUE(failed_.empty());
}

TEST_F(DispatcherTest, CancelReachesTheLeader) {
  table({replica(0)});
  submit(1);
  take();
  dispatcher_.cancel(1);
  dispatcher_.cancel(1);
  take();
  EXPECT_EQ(cancelled_, (std::vector<Sent>{{0, 1}}));
  token(0, 1);
  take();
  EXPECT_TRUE(delivered_.empty());
}

TEST_F(DispatcherTest, CancelOfOneThatWaitsNeedsNoMessage) {
  table({replica(0)});
  table({replica(0, "restarting")});
  submit(1);
  dispatcher_.cancel(1);
  take();
  EXPECT_TRUE(cancelled_.empty());
  EXPECT_EQ(dispatcher_.queued(), 0);
}

TEST_F(DispatcherTest, AProbeGoesToItsReplicaOrNone) {
  table({replica(0), replica(1, "loading")});
  EXPECT_TRUE(dispatcher_.submit_to(0, {1, {5}, {}, {}, 0}, time_));
  EXPECT_FALSE(dispatcher_.submit_to(1, {2, {5}, {}, {}, 0}, time_));
  table({replica(0, "failed"), replica(1)});
  take();
  EXPECT_EQ(failed_, (Ids{1}));
}

TEST_F(DispatcherTest, AFailedSendIsTriedAgainABoundedNumberOfTimes) {
  table({replica(0)});
  submit(1);
  for (int i = 0; i < 9; ++i) {
    take_sent();
    EXPECT_TRUE(failed_.empty());
    dispatcher_.send_failed(wire_.at(1), unavailable("full"), time_);
    dispatcher_.tick(time_);
    take();
  }
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_NE(errors_[0].message.find("full"), std::string::npos);
  EXPECT_EQ(dispatcher_.open(), 0);
}

class BoundedDispatcher : public DispatcherTest {
 protected:
  BoundedDispatcher() : DispatcherTest(bounded()) {}
  static DispatchLimits bounded() {
    DispatchLimits limits;
    limits.queued_max = 2;
    limits.running_max = 1;
    return limits;
  }
};

TEST_F(BoundedDispatcher, SendsNoMoreThanAReplicaRuns) {
  table({replica(0), replica(1)});
  for (std::uint64_t id = 1; id <= 3; ++id) submit(id);
  take();
  EXPECT_EQ(sent_.size(), 2U);
  EXPECT_EQ(dispatcher_.queued(), 1);
  token(1, 2, "length");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 3}}));
}

TEST_F(BoundedDispatcher, TheQueueTakesExactlyItsLimit) {
  table({replica(0)});
  std::uint64_t accepted = 0;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    if (!dispatcher_.admit(1)) continue;
    submit(id);
    ++accepted;
  }
  EXPECT_EQ(accepted, 3U);  // one runs, two wait
  EXPECT_EQ(dispatcher_.admit(1).error().code, Code::unavailable);
}

TEST_F(BoundedDispatcher, TheLimitChangesLive) {
  table({replica(0)});
  for (std::uint64_t id = 1; id <= 3; ++id) submit(id);
  EXPECT_FALSE(dispatcher_.admit(1));
  dispatcher_.set_queued_max(3);
  EXPECT_TRUE(dispatcher_.admit(1));
}

TEST_F(BoundedDispatcher, ARequeuedRequestStandsBeforeLaterOnes) {
  table({replica(0), replica(1)});
  for (std::uint64_t id = 1; id <= 4; ++id) submit(id);
  table({replica(0, "failed"), replica(1)});
  take();
  token(1, 2, "length");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 1}}));
}

}  // namespace
}  // namespace plimsoll
