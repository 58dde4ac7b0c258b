#include "router/dispatch/health.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const TimePoint kStart = TimePoint() + seconds(1000);

Dispatcher with(std::vector<ReplicaInfo> replicas, std::string state, std::string reason = "") {
  Dispatcher dispatcher({});
  dispatcher.replicas({std::move(state), std::move(reason), std::move(replicas)}, kStart);
  return dispatcher;
}

TEST(Health, IsReadyWithOneReadyReplica) {
  const Readiness state =
      readiness(with({{0, "ready", "ipc://x", 1}, {1, "failed", "", 3}}, "serving"), false);
  EXPECT_TRUE(state.ready);
  EXPECT_EQ(dump_json(state.body), R"({"status":"ok","deployment":"serving","reason":null,)"
                                   R"("replicas_ready":1,"replicas":2})");
}

TEST(Health, SaysWhyItIsNot) {
  const Readiness state = readiness(with({{0, "loading", "", 1}}, "loading", "40 % loaded"), false);
  EXPECT_FALSE(state.ready);
  EXPECT_EQ(state.body.find("reason")->as_string(), "40 % loaded");
  EXPECT_FALSE(readiness(with({}, "serving"), false).ready);
}

// The daemon's test request is what proves a deployment; a ready replica alone does not.
TEST(Health, IsNotReadyBeforeTheDeploymentServes) {
  for (const char* state : {"loading", "warming", "draining", "failed"}) {
    const Readiness early = readiness(with({{0, "ready", "ipc://x", 1}}, state), false);
    EXPECT_FALSE(early.ready) << state;
    EXPECT_EQ(early.body.find("status")->as_string(), "unavailable");
    EXPECT_EQ(early.body.find("reason")->as_string(), std::string("the deployment is ") + state);
  }
}

TEST(Health, StaysReadyWhileAnotherReplicaRestarts) {
  EXPECT_TRUE(
      readiness(with({{0, "ready", "ipc://x", 1}, {1, "restarting", "", 2}}, "serving"), false)
          .ready);
}

TEST(Health, IsNotReadyWhileItDrains) {
  EXPECT_FALSE(readiness(with({{0, "ready", "ipc://x", 1}}, "serving"), true).ready);
}

TEST(Health, AProbeNeedsEveryReplica) {
  ProbeRun probe;
  probe.start(4, {{10, 0}, {11, 1}}, kStart);
  EXPECT_TRUE(probe.owns(10));
  EXPECT_FALSE(probe.owns(12));
  EXPECT_FALSE(probe.finished(10));
  EXPECT_FALSE(probe.finished(10));
  const auto result = probe.finished(11);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->ok);
  EXPECT_EQ(result->sequence, 4);
}

TEST(Health, AProbeFailsWithItsFirstReplica) {
  ProbeRun probe;
  probe.start(4, {{10, 0}, {11, 1}}, kStart);
  const auto result = probe.failed(11, corrupt("lost"));
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->ok);
  EXPECT_EQ(result->message, "replica 1: lost");
  EXPECT_EQ(result->code, "corrupt");
}

TEST(Health, AProbeHasADeadline) {
  ProbeRun probe;
  probe.start(4, {{10, 0}}, kStart);
  EXPECT_FALSE(probe.tick(kStart + seconds(29)));
  const auto result = probe.tick(kStart + seconds(30));
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->ok);
}

}  // namespace
}  // namespace plimsoll
