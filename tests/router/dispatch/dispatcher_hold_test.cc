// What the dispatcher holds, for whom, and what it fails at once.

#include <gtest/gtest.h>

#include "tests/router/dispatch/dispatcher_harness.h"

namespace plimsoll {
namespace {

TEST_F(DispatcherTest, HeldRequestsComeOnTopOfTheQueuesLimit) {
  DispatchLimits limits;
  limits.queued_max = 0;
  dispatcher_ = Dispatcher(limits);
  table({replica(0)});
  submit(1), submit(2);
  table({replica(0, "restarting")});
  take();
  EXPECT_TRUE(failed_.empty());
  EXPECT_EQ(dispatcher_.queued(), 2);
  EXPECT_FALSE(dispatcher_.admit(1));
}

TEST_F(DispatcherTest, WhatNobodyWillFinishFailsAtOnce) {
  table({replica(0)});
  submit(1), submit(2);
  token(0, 1);
  take();
  table({replica(0, "failed")}, "draining");
  take();
  EXPECT_EQ(failed_, (Ids{1, 2}));
  EXPECT_NE(errors_[0].message.find("draining"), std::string::npos);
}

TEST_F(DispatcherTest, WhileDrainingAReplicaThatComesBackIsWaitedFor) {
  table({replica(0)});
  submit(1);
  take();
  table({replica(0, "restarting")}, "draining");
  table({replica(0, "ready", 2)}, "draining");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}}));
}

TEST_F(DispatcherTest, WithoutAnotherReplicaItIsHeldUntilOneIsBack) {
  table({replica(0)});
  submit(1), submit(2);
  table({replica(0, "restarting")});
  take();
  EXPECT_TRUE(failed_.empty());
  EXPECT_EQ(dispatcher_.queued(), 2);
  EXPECT_TRUE(dispatcher_.admit(1));
  submit(3);
  table({replica(0, "ready", 2)});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {0, 2}, {0, 3}}));
}

TEST_F(DispatcherTest, HoldingHasADeadline) {
  table({replica(0)});
  submit(1);
  table({replica(0, "restarting")});
  time_ += seconds(59);
  dispatcher_.tick(time_);
  take();
  EXPECT_TRUE(failed_.empty());
  time_ += seconds(2);
  dispatcher_.tick(time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_EQ(errors_[0].code, Code::unavailable);
}

TEST_F(DispatcherTest, HoursOfAStreamAreNoWait) {
  table({replica(0)});
  submit(1);
  token(0, 1);
  time_ += std::chrono::hours(2);
  table({replica(0, "restarting")});
  dispatcher_.tick(time_);
  table({replica(0, "ready", 2)});
  take();
  EXPECT_TRUE(failed_.empty());
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {0, 1}}));
}

TEST_F(DispatcherTest, WhoHasWaitedInTheListeningSocketIsNotHeldAsLongAgain) {
  table({replica(0, "loading")}, "held");
  time_ += seconds(61);  // then clients are let in although nothing serves
  table({replica(0, "loading")}, "loading");
  submit(1);
  dispatcher_.tick(time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  table({replica(0)}, "serving");
  submit(2);
  table({replica(0, "restarting")}, "loading");
  dispatcher_.tick(time_);
  take();
  EXPECT_TRUE(failed_.empty()) << "that was another wait";
}

TEST_F(DispatcherTest, TheHoldDeadlineChangesLive) {
  table({replica(0)});
  submit(1);
  table({replica(0, "restarting")});
  dispatcher_.set_hold_max(seconds(1));
  time_ += seconds(2);
  dispatcher_.tick(time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
}

TEST_F(DispatcherTest, BeforeTheFirstReplicaIsReadyRequestsAreHeld) {
  table({replica(0, "loading")}, "loading");
  EXPECT_TRUE(dispatcher_.admit(1));
  submit(1);
  table({replica(0, "warming")}, "warming");
  take();
  EXPECT_TRUE(sent_.empty() && failed_.empty());
  table({replica(0)}, "warming");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}}));
}

TEST_F(DispatcherTest, BetweenTwoSetsOfReplicasRequestsAreHeld) {
  table({replica(0, "draining")}, "loading");
  EXPECT_TRUE(dispatcher_.admit(1));
  submit(1);
  table({}, "loading");
  table({replica(5)}, "serving");
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{5, 1}}));
}

TEST_F(DispatcherTest, ADeploymentThatCannotBeServedSaysWhyAtOnce) {
  table({replica(0, "loading"), replica(1, "loading")}, "loading");
  submit(1);
  dispatcher_.replicas({"failed", "the file is damaged", {replica(0, "loading")}}, time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_NE(errors_[0].message.find("the file is damaged"), std::string::npos);
  const Status status = dispatcher_.admit(1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::unavailable);
  EXPECT_NE(status.error().message.find("the file is damaged"), std::string::npos);
}

TEST_F(DispatcherTest, OneThatProvesItselfTakesProbesOnly) {
  table({replica(0, "proving")}, "loading");
  submit(1);
  take();
  EXPECT_TRUE(sent_.empty());
  Generate probe;
  probe.id = 2;
  EXPECT_TRUE(dispatcher_.submit_to(0, std::move(probe), time_));
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 2}}));
  table({replica(0)});
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}})) << "the connection stays, and so does the probe";
  EXPECT_TRUE(failed_.empty());
}

TEST_F(DispatcherTest, WhatWasOnABrokenConnectionGoesOnAtOnce) {
  table({replica(0)});
  submit(1), submit(2);
  token(0, 1);
  take();
  dispatcher_.disconnected(0, time_);
  take();
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 1}, {0, 2}}));
  EXPECT_EQ(resumed_, 2);
  EXPECT_EQ(generates_.at(1).emitted, (std::vector<std::int64_t>{9}));
  EXPECT_EQ(connected_, (std::vector<std::int64_t>{0}));
  token(0, 1, "stop");
  take();
  EXPECT_EQ(delivered_, (Ids{1}));
}

TEST_F(DispatcherTest, AConnectionThatBreaksAgainAndAgainFailsItsRequestsInTheEnd) {
  table({replica(0)});
  submit(1);
  for (int i = 0; i < 9; ++i) dispatcher_.disconnected(0, time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
}

TEST_F(DispatcherTest, WithoutAnyTableRequestsWaitForTheFirst) {
  EXPECT_TRUE(dispatcher_.admit(1));
}

TEST_F(DispatcherTest, AfterTheEndRequestsAreRefused) {
  table({replica(0)});
  table({}, "stopped");
  EXPECT_FALSE(dispatcher_.admit(1));
}

}  // namespace
}  // namespace plimsoll
