#include "router/dispatch/dispatcher.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Ids = std::vector<std::uint64_t>;

struct Sent {
  std::int64_t replica = 0;
  std::uint64_t id = 0;
  bool operator==(const Sent&) const = default;
};

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(DispatchLimits limits = {}) : dispatcher_(limits) {}

  void table(std::vector<ReplicaInfo> infos, std::string state = "serving") {
    dispatcher_.replicas({std::move(state), "", std::move(infos)}, time_);
  }
  static ReplicaInfo replica(std::int64_t id, std::string state = "ready",
                             std::int64_t incarnation = 1) {
    return {id, std::move(state), "ipc://x", incarnation};
  }
  void submit(std::uint64_t id, std::size_t prompt_tokens = 1) {
    Generate generate;
    generate.id = id;
    generate.prompt.assign(prompt_tokens, 5);
    dispatcher_.submit(std::move(generate), time_);
  }
  void token(std::int64_t replica, std::uint64_t id, std::string finish = "") {
    TokenEvent event;
    event.id = id;
    event.tokens = {9};
    event.finish = std::move(finish);
    step(replica, std::move(event));
  }
  void error(std::int64_t replica, std::uint64_t id, Code code) {
    TokenEvent event;
    event.id = id;
    event.finish = "error";
    event.error_code = code_name(code);
    event.error = "why";
    step(replica, std::move(event));
  }
  void step(std::int64_t replica, TokenEvent event) {
    StepTokens step;
    step.events.push_back(std::move(event));
    dispatcher_.tokens(replica, std::move(step), time_);
  }
  // Takes all actions; each of the lists has those of its kind.
  void take() {
    sent_.clear(), cancelled_.clear(), delivered_.clear(), failed_.clear(), errors_.clear();
    for (DispatchAction& action : dispatcher_.take_actions()) {
      if (auto* one = std::get_if<SendGenerate>(&action)) {
        sent_.push_back({one->replica, one->generate.id});
      } else if (auto* cancel = std::get_if<SendCancel>(&action)) {
        cancelled_.push_back({cancel->replica, cancel->id});
      } else if (auto* delivery = std::get_if<Deliver>(&action)) {
        delivered_.push_back(delivery->event.id);
      } else if (auto* failure = std::get_if<Fail>(&action)) {
        failed_.push_back(failure->id);
        errors_.push_back(failure->error);
      }
    }
  }

  TimePoint time_ = TimePoint() + seconds(1000);
  Dispatcher dispatcher_;
  std::vector<Sent> sent_;
  std::vector<Sent> cancelled_;
  Ids delivered_;
  Ids failed_;
  std::vector<Error> errors_;
};

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

TEST_F(DispatcherTest, ALostRequestWithTokensFails) {
  table({replica(0), replica(1)});
  submit(1);
  token(0, 1);
  table({replica(0, "restarting"), replica(1)});
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_EQ(errors_[0].code, Code::unavailable);
  EXPECT_NE(errors_[0].message.find("replica 0 was lost"), std::string::npos);
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
  time_ += seconds(29);
  dispatcher_.tick(time_);
  take();
  EXPECT_TRUE(failed_.empty());
  time_ += seconds(2);
  dispatcher_.tick(time_);
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_EQ(errors_[0].code, Code::unavailable);
}

TEST_F(DispatcherTest, ARequestThatLosesThreeReplicasFails) {
  table({replica(0)});
  submit(1);
  for (std::int64_t incarnation = 2; incarnation <= 4; ++incarnation) {
    table({replica(0, "ready", incarnation)});
  }
  take();
  EXPECT_EQ(failed_, (Ids{1}));
}

TEST_F(DispatcherTest, BeforeTheFirstReplicaRequestsAreRefused) {
  EXPECT_FALSE(dispatcher_.admit(1));
  table({replica(0, "loading")}, "loading");
  const Status status = dispatcher_.admit(1);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("loading"), std::string::npos);
}

TEST_F(DispatcherTest, AfterTheEndRequestsAreRefused) {
  table({replica(0)});
  table({}, "stopped");
  EXPECT_FALSE(dispatcher_.admit(1));
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
  EXPECT_TRUE(dispatcher_.submit_to(0, {1, {5}, {}}, time_));
  EXPECT_FALSE(dispatcher_.submit_to(1, {2, {5}, {}}, time_));
  table({replica(0, "failed"), replica(1)});
  take();
  EXPECT_EQ(failed_, (Ids{1}));
}

TEST_F(DispatcherTest, AFailedSendFailsTheRequest) {
  table({replica(0)});
  submit(1);
  dispatcher_.send_failed(1, unavailable("full"));
  take();
  EXPECT_EQ(failed_, (Ids{1}));
  EXPECT_EQ(dispatcher_.open(), 0);
}

class BoundedDispatcher : public DispatcherTest {
 protected:
  BoundedDispatcher() : DispatcherTest({.queued_max = 2, .running_max = 1}) {}
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
