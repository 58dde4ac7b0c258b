#include "daemon/deployment.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

class DeploymentTest : public ::testing::Test {
 protected:
  static LaunchPlan plan() {
    LaunchPlan plan;
    plan.tp = 1;
    plan.dp = 2;
    return plan;
  }
  static ChildId worker(std::int64_t replica) {
    return {.replica = replica, .incarnation = replica + 1};
  }
  void start() {
    deployment_.start(kStart, out_);
    for (const Action& action : Actions(out_)) {
      if (const auto* spawn = std::get_if<Spawn>(&action)) {
        deployment_.child_started(spawn->child, 10 + spawn->child.incarnation, kStart, out_);
      }
    }
  }
  void hello(const std::string& peer, const std::string& role, std::int64_t replica,
             std::int64_t pid) {
    Hello words;
    words.role = role;
    words.instance = "i";
    words.replica = replica;
    words.pid = pid;
    deployment_.said(peer, words, kStart, out_);
  }

  std::int64_t incarnations_ = 0;
  std::int64_t questions_ = 0;
  Strangers strangers_;
  Quarantine quarantine_;
  Deployment deployment_{plan(),
                         {.instance = "i", .runtime = "/run"},
                         {incarnations_, questions_, strangers_, quarantine_}};
  Actions out_;
};

TEST_F(DeploymentTest, EveryStartHasAnIncarnationOfItsOwn) {
  start();
  EXPECT_EQ(incarnations_, 3);
  EXPECT_NE(deployment_.cohorts()[0].endpoint(), deployment_.cohorts()[1].endpoint());
}

TEST_F(DeploymentTest, TheTotalIsUnknownUntilEveryRankHasSaidItsOwn) {
  start();
  hello("a", "worker", 0, 11);
  hello("b", "worker", 1, 12);
  deployment_.said("a", Progress{"loading", 5, 10}, kStart, out_);
  EXPECT_EQ(deployment_.progress().total, 0);
  deployment_.said("b", Progress{"loading", 2, 10}, kStart, out_);
  EXPECT_EQ(deployment_.progress().total, 20);
  EXPECT_EQ(deployment_.progress().done, 7);
}

TEST(DeploymentProgress, TheTotalIsThePlansFromTheStart) {
  LaunchPlan plan;
  plan.dp = 2;
  plan.weight_bytes = {10, 30};
  std::int64_t incarnations = 0;
  std::int64_t questions = 0;
  Strangers strangers;
  Quarantine quarantine;
  Deployment deployment(plan, {.instance = "i", .runtime = "/run"},
                        {incarnations, questions, strangers, quarantine});
  Actions out;
  deployment.start(kStart, out);
  EXPECT_EQ(deployment.progress().total, 40);
  deployment.child_started({.replica = 0, .incarnation = 1}, 11, kStart, out);
  Hello hello;
  hello.role = "worker";
  hello.instance = "i";
  hello.pid = 11;
  deployment.said("a", hello, kStart, out);
  deployment.said("a", Progress{"loading", 10, 10}, kStart, out);
  deployment.said("a", Loaded{}, kStart, out);
  deployment.said("a", Progress{"warming", 0, 1}, kStart, out);
  EXPECT_EQ(deployment.progress().total, 40) << "what a rank warms up is no weights";
  EXPECT_EQ(deployment.progress().done, 10);
}

TEST_F(DeploymentTest, AHelloWithAnothersPidIsRefusedAndAPeerIsWarnedAboutOnce) {
  start();
  out_.clear();
  hello("a", "worker", 0, 12);
  hello("a", "worker", 0, 12);
  deployment_.said("a", Loaded{}, kStart, out_);
  EXPECT_EQ(out_.size(), 1U);
  EXPECT_EQ(deployment_.cohorts()[0].workers()[0].peer, "");
  EXPECT_EQ(deployment_.cohorts()[1].workers()[0].peer, "");
}

TEST_F(DeploymentTest, WhoLostItsConnectionSaysHelloAgainAndGoesOn) {
  start();
  hello("a", "worker", 0, 11);
  deployment_.said("a", Progress{"loading", 5, 10}, kStart, out_);
  out_.clear();
  hello("b", "worker", 0, 11);
  EXPECT_TRUE(out_.empty()) << "it has its Load";
  deployment_.said("b", Loaded{}, kStart, out_);
  EXPECT_TRUE(deployment_.cohorts()[0].workers()[0].is_loaded);
  EXPECT_EQ(deployment_.cohorts()[0].workers()[0].peer, "b");
}

TEST_F(DeploymentTest, WhatALateMessageOfAFormerLifeSaysIsDropped) {
  start();
  hello("a", "worker", 0, 11);
  deployment_.child_exited(worker(0), {true, 9}, kStart, out_);
  deployment_.tick(kStart + seconds(2), out_);  // started again
  EXPECT_EQ(incarnations_, 4);
  deployment_.said("a", Loaded{}, kStart + seconds(2), out_);
  EXPECT_FALSE(deployment_.cohorts()[0].workers()[0].is_loaded);
}

TEST_F(DeploymentTest, StoppedBeforeItHasServedItIsGoneWithItsProcesses) {
  start();
  deployment_.stop({}, kStart, out_);
  EXPECT_EQ(deployment_.state(), DeploymentState::draining);
  deployment_.child_exited(worker(0), {true, 15}, kStart, out_);
  deployment_.child_exited(worker(1), {true, 15}, kStart, out_);
  deployment_.child_exited({.kind = ChildId::Kind::router, .incarnation = 3}, {true, 15}, kStart,
                           out_);
  EXPECT_EQ(deployment_.state(), DeploymentState::stopped);
  EXPECT_FALSE(deployment_.next_deadline());
}

}  // namespace
}  // namespace plimsoll
