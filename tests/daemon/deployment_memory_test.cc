// What daemon/deployment_memory.cc decides.

#include <gtest/gtest.h>

#include "daemon/deployment.h"

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

// Two replicas of one rank each, with 10 GiB of KV in 20 GiB; what they measure is given.
class TwoPhases : public ::testing::Test {
 protected:
  static constexpr Blocks kBlocks = 128;
  static LaunchPlan plan() {
    LaunchPlan plan;
    plan.dp = 2;
    plan.kv_blocks = kBlocks;
    plan.memory.dp = 2;
    plan.memory.decisions.kv_blocks = kBlocks;
    plan.memory.decisions.context_length = 32 * 32;
    for (std::int64_t replica = 0; replica < 2; ++replica) {
      RankPlan rank;
      rank.replica = replica;
      rank.budget = 20 * kGiB;
      rank.rows = {{Term::weights, 10 * kGiB, "", Trust::computed},
                   {Term::kv, 10 * kGiB, "", Trust::computed}};
      plan.memory.ranks.push_back(rank);
    }
    return plan;
  }
  void start() {
    deployment_.start(kStart, out_);
    for (const Action& action : Actions(out_)) spawned(action);
  }
  void spawned(const Action& action) {
    const auto* spawn = std::get_if<Spawn>(&action);
    if (spawn == nullptr) return;
    const std::int64_t pid = 10 + spawn->child.incarnation;
    deployment_.child_started(spawn->child, pid, kStart, out_);
    Hello words;
    words.role = spawn->child.kind == ChildId::Kind::router ? "router" : "worker";
    words.instance = "i";
    words.replica = spawn->child.replica;
    words.pid = pid;
    deployment_.said(peer(spawn->child), words, kStart, out_);
  }
  static std::string peer(const ChildId& child) {
    return child.kind == ChildId::Kind::router ? "router" : std::to_string(child.replica);
  }
  void load(std::int64_t replica, Bytes weights) {
    Measured measured;
    measured.source = "simulated device";
    measured.terms["weights"] = weights;
    deployment_.said(std::to_string(replica), Loaded{measured_to_json(measured)}, kStart, out_);
  }
  std::vector<Blocks> committed() const {
    std::vector<Blocks> blocks;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto* commit = send != nullptr ? std::get_if<Commit>(&send->message) : nullptr;
      if (commit != nullptr) blocks.push_back(commit->kv_blocks);
    }
    return blocks;
  }
  std::size_t count_logged(const std::string& part) const {
    std::size_t count = 0;
    for (const Action& action : out_) {
      const auto* log = std::get_if<Log>(&action);
      if (log != nullptr && log->line.find(part) != std::string::npos) ++count;
    }
    return count;
  }

  std::int64_t incarnations_ = 0;
  Strangers strangers_;
  Deployment deployment_{plan(), {.instance = "i", .runtime = "/run"}, incarnations_, strangers_};
  Actions out_;
};

TEST_F(TwoPhases, AllReplicasGetTheSameKvOnceTheLastHasLoaded) {
  start();
  load(0, 10 * kGiB);
  EXPECT_TRUE(committed().empty());
  load(1, 15 * kGiB);
  EXPECT_EQ(committed(), (std::vector<Blocks>{kBlocks / 2, kBlocks / 2}));
  EXPECT_EQ(count_logged("drift of weights: planned 10.00 GiB (computed), measured 15.00 GiB"), 1U);
  EXPECT_EQ(count_logged("KV is 64 blocks"), 1U);
  ASSERT_EQ(deployment_.drifts().size(), 1U);
  EXPECT_EQ(deployment_.drifts()[0].ranks, std::vector<std::string>{"1.0"});
}

TEST_F(TwoPhases, WhatNoLongerFitsIsRefusedOnceAndEndsTheDeployment) {
  start();
  load(0, 19 * kGiB);
  load(1, 19 * kGiB);
  EXPECT_TRUE(committed().empty());
  EXPECT_EQ(deployment_.state(), DeploymentState::draining);
  ASSERT_TRUE(deployment_.failure());
  EXPECT_EQ(deployment_.failure()->code, Code::does_not_fit);
  EXPECT_EQ(count_logged("drift of weights"), 1U) << "both ranks in one line";
}

TEST_F(TwoPhases, AReplicaThatStartsAgainGetsNoMoreThanTheOthersHave) {
  start();
  load(0, 10 * kGiB);
  load(1, 15 * kGiB);
  const ChildId first{.replica = 0, .incarnation = deployment_.cohorts()[0].incarnation()};
  deployment_.child_exited(first, {true, 9}, kStart, out_);
  out_.clear();
  deployment_.tick(kStart + seconds(2), out_);
  for (const Action& action : Actions(out_)) spawned(action);
  load(0, 10 * kGiB);
  EXPECT_EQ(committed(), std::vector<Blocks>{kBlocks / 2});
}

TEST_F(TwoPhases, WhatCameWithTheFirstStepIsReportedToo) {
  start();
  load(0, 10 * kGiB);
  load(1, 10 * kGiB);
  EXPECT_EQ(count_logged("drift"), 0U);
  Measured measured;
  measured.source = "simulated device";
  measured.terms = {{"weights", 10 * kGiB}, {"graphs", kGiB}};
  for (const char* peer : {"0", "1"}) {
    deployment_.said(peer, Ready{"cpu", measured_to_json(measured)}, kStart, out_);
  }
  EXPECT_EQ(count_logged("drift of graphs: planned 0 B, measured 1.00 GiB"), 2U) << "one a replica";
}

}  // namespace
}  // namespace plimsoll
