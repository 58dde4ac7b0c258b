#include "router/dispatch/replica_table.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using Ids = std::vector<std::int64_t>;

ReplicaInfo info(std::int64_t replica, std::string state, std::int64_t incarnation = 1,
                 std::string endpoint = "ipc://a") {
  return {replica, std::move(state), std::move(endpoint), incarnation};
}

TEST(ReplicaTable, ConnectsToWhatBecomesReady) {
  ReplicaTable table;
  EXPECT_TRUE(table.update({info(0, "loading"), info(1, "loading")}).connect.empty());
  EXPECT_EQ(table.update({info(0, "ready"), info(1, "loading")}).connect, (Ids{0}));
  EXPECT_EQ(table.ready_count(), 1);
}

TEST(ReplicaTable, SameWordsChangeNothing) {
  ReplicaTable table;
  table.update({info(0, "ready")});
  table.replicas().at(0).requests = {5};
  const ReplicaChanges changes = table.update({info(0, "ready")});
  EXPECT_TRUE(changes.connect.empty() && changes.disconnect.empty() && changes.lost.empty());
  EXPECT_TRUE(table.replicas().at(0).requests.contains(5));
}

TEST(ReplicaTable, ADrainingReplicaKeepsItsRequests) {
  ReplicaTable table;
  table.update({info(0, "ready")});
  table.replicas().at(0).requests = {5};
  EXPECT_TRUE(table.update({info(0, "draining")}).lost.empty());
  EXPECT_TRUE(table.replicas().at(0).requests.contains(5));
  EXPECT_EQ(table.ready_count(), 0);
}

TEST(ReplicaTable, ANewIncarnationLosesTheOldOnesRequests) {
  ReplicaTable table;
  table.update({info(0, "ready")});
  table.replicas().at(0).requests = {5, 6};
  const ReplicaChanges changes = table.update({info(0, "ready", 2)});
  ASSERT_EQ(changes.lost.size(), 1U);
  EXPECT_EQ(changes.lost[0].requests, (std::set<std::uint64_t>{5, 6}));
  EXPECT_EQ(changes.disconnect, (Ids{0}));
  EXPECT_EQ(changes.connect, (Ids{0}));
  EXPECT_TRUE(table.replicas().at(0).requests.empty());
}

TEST(ReplicaTable, KnowsWhetherOneIsOnItsWay) {
  ReplicaTable table;
  EXPECT_FALSE(table.any_coming());
  for (const char* state : {"ready", "failed", "stopped"}) {
    table.update({info(0, state)});
    EXPECT_FALSE(table.any_coming()) << state;
  }
  for (const char* state : {"loading", "warming", "proving", "restarting"}) {
    table.update({info(0, "failed"), info(1, state)});
    EXPECT_TRUE(table.any_coming()) << state;
  }
}

TEST(ReplicaTable, AFailedOrRemovedReplicaIsLost) {
  ReplicaTable table;
  table.update({info(0, "ready"), info(1, "ready")});
  const ReplicaChanges changes = table.update({info(0, "failed")});
  ASSERT_EQ(changes.lost.size(), 2U);
  EXPECT_EQ(changes.lost[0].state, "failed");
  EXPECT_EQ(changes.lost[1].state, "removed");
  EXPECT_EQ(changes.disconnect, (Ids{0, 1}));
  EXPECT_TRUE(table.update({info(0, "restarting")}).disconnect.empty());
}

TEST(ReplicaTable, OneThatWeNeverHadReadyIsNotConnectedWhileItDrains) {
  ReplicaTable table;
  EXPECT_TRUE(table.update({info(0, "draining")}).connect.empty());
  EXPECT_TRUE(table.update({info(0, "failed")}).lost.empty());
}

}  // namespace
}  // namespace plimsoll
