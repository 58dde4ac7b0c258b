// What daemon/deployment_memory.cc decides.

#include <algorithm>

#include <gtest/gtest.h>

#include "daemon/deployment.h"

namespace plimsoll {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(100);

// Two replicas of one rank each, with 10 GiB of KV in 20 GiB; what they measure is given.
class TwoPhases : public ::testing::Test {
 protected:
  static constexpr Blocks kBlocks = 128;
  explicit TwoPhases(const LaunchPlan& launch = plan())
      : deployment_(launch, {.instance = "i", .runtime = "/run"},
                    {incarnations_, questions_, strangers_, quarantine_}) {}
  static LaunchPlan plan() {
    LaunchPlan plan;
    plan.context_length = 32 * 32;
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
    words.free = free_;
    deployment_.said(peer(spawn->child), words, kStart, out_);
  }
  static std::string peer(const ChildId& child) {
    return child.kind == ChildId::Kind::router ? "router" : std::to_string(child.replica);
  }
  std::size_t count_loads() const {
    return static_cast<std::size_t>(std::ranges::count_if(out_, [](const Action& action) {
      const auto* send = std::get_if<Send>(&action);
      return send != nullptr && std::holds_alternative<Load>(send->message);
    }));
  }
  std::size_t count_plans() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        out_, [](const Action& action) { return std::holds_alternative<MakePlan>(action); }));
  }
  void load(std::int64_t replica, Bytes weights) {
    Measured measured;
    measured.source = "simulated device";
    measured.terms["weights"] = weights;
    deployment_.said(std::to_string(replica), Loaded{measured_to_json(measured)}, kStart, out_);
  }
  // What the router has been told that requests may be.
  std::vector<Tokens> contexts_of_router() const {
    std::vector<Tokens> contexts;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto* setup = send != nullptr ? std::get_if<RouterSetup>(&send->message) : nullptr;
      if (setup != nullptr) contexts.push_back(setup->context_length);
    }
    return contexts;
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
  std::int64_t questions_ = 0;
  Strangers strangers_;
  Quarantine quarantine_;
  Deployment deployment_;
  Actions out_;
  Bytes free_ = 0;  // that workers find; 0: they do not say
};

TEST_F(TwoPhases, WhatIsThereWhenWorkersBeginIsNotPlannedAgain) {
  free_ = 40 * kGiB;
  start();
  EXPECT_EQ(count_plans(), 0U);
  EXPECT_EQ(count_loads(), 2U);
}

TEST_F(TwoPhases, LessMemoryThanPlannedIsPlannedForOnceMoreBeforeAnythingIsLoaded) {
  free_ = 39 * kGiB;
  start();
  EXPECT_EQ(count_plans(), 1U);
  EXPECT_EQ(count_loads(), 0U);
  ASSERT_TRUE(deployment_.awaits_plan(questions_));
  LaunchPlan less = plan();
  less.context_length = 32 * 16;
  deployment_.replanned(less, kStart, out_);
  EXPECT_EQ(count_loads(), 2U);
  EXPECT_EQ(contexts_of_router().back(), 32 * 16);
  load(0, 10 * kGiB);
  load(1, 10 * kGiB);
  EXPECT_EQ(committed().size(), 2U);
  EXPECT_EQ(count_plans(), 1U);
}

TEST_F(TwoPhases, WhoIsHeldWhileItIsPlannedOnceMoreIsNotBlamedForTheTime) {
  free_ = 39 * kGiB;
  start();
  ASSERT_TRUE(deployment_.awaits_plan(questions_));
  deployment_.tick(kStart + seconds(3600), out_);
  EXPECT_EQ(count_logged("replica"), 0U);
  EXPECT_EQ(std::ranges::count_if(
                out_, [](const Action& one) { return std::holds_alternative<AbortSegment>(one); }),
            0);
}

TEST_F(TwoPhases, WhatNoLongerFitsWhenWorkersBeginIsRefusedBeforeAnythingIsLoaded) {
  free_ = kGiB;
  start();
  LaunchPlan refused = plan();
  refused.refusal = does_not_fit("the plan does not fit: ...");
  deployment_.replanned(refused, kStart, out_);
  EXPECT_EQ(count_loads(), 0U);
  ASSERT_TRUE(deployment_.failure());
  EXPECT_EQ(deployment_.failure()->code, Code::does_not_fit);
}

TEST_F(TwoPhases, AStopThatCameBeforeTheSecondPlanStaysAStop) {
  free_ = kGiB;
  start();
  ASSERT_TRUE(deployment_.awaits_plan(questions_));
  deployment_.stop({}, kStart, out_);
  LaunchPlan refused = plan();
  refused.refusal = does_not_fit("the plan does not fit: ...");
  deployment_.replanned(refused, kStart, out_);
  EXPECT_FALSE(deployment_.failure());
  EXPECT_EQ(count_loads(), 0U);
}

class AutoContext : public TwoPhases {
 protected:
  AutoContext() : TwoPhases(launch()) {}
  static LaunchPlan launch() {
    LaunchPlan launch = plan();
    launch.memory.decisions.context_length_min = 8 * 32;
    return launch;
  }
};

TEST_F(AutoContext, IsLoweredForRouterAndWorkersWhenKvHoldsLessThanOneRequest) {
  start();
  load(0, 10 * kGiB);
  load(1, 19 * kGiB);
  EXPECT_EQ(committed(), (std::vector<Blocks>{12, 12}));
  EXPECT_EQ(contexts_of_router(), (std::vector<Tokens>{32 * 32, 12 * 32}));
  for (const Action& action : out_) {
    const auto* send = std::get_if<Send>(&action);
    const auto* commit = send != nullptr ? std::get_if<Commit>(&send->message) : nullptr;
    if (commit != nullptr) {
      EXPECT_EQ(commit->context_length, 12 * 32);
    }
  }
  EXPECT_EQ(deployment_.plan().context_length, 12 * 32);
  EXPECT_EQ(count_logged("the context, which is auto, 384 tokens instead of 1,024"), 1U);
}

TEST_F(AutoContext, IsNotLoweredAgainForAReplicaThatStartsAgain) {
  start();
  load(0, 10 * kGiB);
  load(1, 10 * kGiB);
  const ChildId first{.replica = 0, .incarnation = deployment_.cohorts()[0].incarnation()};
  deployment_.child_exited(first, {true, 9}, kStart, out_);
  out_.clear();
  deployment_.tick(kStart + seconds(2), out_);
  for (const Action& action : Actions(out_)) spawned(action);
  load(0, 19 * kGiB);
  EXPECT_TRUE(committed().empty());
  EXPECT_EQ(deployment_.plan().context_length, 32 * 32);
}

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

// The same on devices of 20 GiB, of which each rank's context takes 1 GiB.
class OnDevices : public TwoPhases {
 protected:
  OnDevices() : TwoPhases(on_devices()) {}
  static LaunchPlan on_devices() {
    LaunchPlan launch = plan();
    launch.memory.devices = "simulated";
    launch.simulated_memory = {20 * kGiB, 20 * kGiB};
    for (RankPlan& rank : launch.memory.ranks) {
      rank.device = rank.replica;
      rank.device_uuid = "GPU-" + std::to_string(rank.replica);
      rank.rows = {{Term::context, kGiB, "", Trust::assumed},
                   {Term::weights, 10 * kGiB, "", Trust::computed},
                   {Term::kv, 9 * kGiB, "", Trust::computed}};
    }
    return launch;
  }
  void open(std::int64_t replica, Bytes context, Bytes free) {
    deployment_.said(std::to_string(replica), Opened{context, free}, kStart, out_);
  }
  void break_device(const std::string& uuid) {
    quarantine_.push_back({.uuid = uuid, .name = "", .reason = "Xid 79", .since = kStart});
    deployment_.device_faulted({uuid, "Xid 79"}, kStart, out_);
  }
  std::vector<Load> loads() const {
    std::vector<Load> found;
    for (const Action& action : out_) {
      const auto* send = std::get_if<Send>(&action);
      const auto* load = send != nullptr ? std::get_if<Load>(&send->message) : nullptr;
      if (load != nullptr) found.push_back(*load);
    }
    return found;
  }
};

TEST_F(OnDevices, NothingIsLoadedBeforeAllRanksHaveOpenedTheirs) {
  start();
  ASSERT_EQ(loads().size(), 2U);
  for (const Load& load : loads()) {
    EXPECT_TRUE(load.is_tentative);
    EXPECT_EQ(load.simulated_memory, 20 * kGiB);
  }
  open(0, kGiB, 19 * kGiB);
  EXPECT_EQ(loads().size(), 2U);
  open(1, kGiB + 100 * kMiB, 19 * kGiB - 100 * kMiB);  // within the tolerance
  ASSERT_EQ(loads().size(), 4U);
  EXPECT_FALSE(loads()[2].is_tentative);
  EXPECT_FALSE(loads()[3].is_tentative);
  EXPECT_EQ(count_plans(), 0U);
}

TEST_F(OnDevices, WhatOneFindsLessIsPlannedForOnceMoreWithWhatAllHaveFound) {
  start();
  open(1, kGiB, 12 * kGiB);
  EXPECT_EQ(count_plans(), 0U) << "another may have even less";
  open(0, 2 * kGiB, 18 * kGiB);
  ASSERT_EQ(count_plans(), 1U);
  EXPECT_EQ(count_logged("drift of context: planned 1.00 GiB (assumed), measured 2.00 GiB"), 1U);
  ASSERT_EQ(deployment_.drifts().size(), 1U);
  EXPECT_EQ(deployment_.drifts()[0].ranks, std::vector<std::string>{"0.0"});
  const auto asked = std::ranges::find_if(
      out_, [](const Action& action) { return std::holds_alternative<MakePlan>(action); });
  const std::vector<DeviceFound>& found = std::get<MakePlan>(*asked).found;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].device, 0);
  EXPECT_EQ(found[0].context, 2 * kGiB);
  EXPECT_EQ(found[1].free, 12 * kGiB);
  EXPECT_EQ(loads().size(), 2U);
  LaunchPlan less = on_devices();
  less.context_length = 32 * 16;
  deployment_.replanned(less, kStart, out_);
  ASSERT_EQ(loads().size(), 4U);
  EXPECT_FALSE(loads().back().is_tentative);
  EXPECT_EQ(deployment_.plan().context_length, 32 * 16);
}

TEST_F(OnDevices, WhatThenDoesNotFitIsRefusedBeforeAnythingIsLoadedAndSaysWhatWasFound) {
  start();
  open(0, kGiB, 19 * kGiB);
  open(1, kGiB, 4 * kGiB);
  LaunchPlan refused = on_devices();
  refused.refusal = does_not_fit("the plan does not fit: ...");
  deployment_.replanned(refused, kStart, out_);
  EXPECT_EQ(loads().size(), 2U);
  ASSERT_TRUE(deployment_.failure());
  EXPECT_EQ(deployment_.failure()->code, Code::does_not_fit);
  EXPECT_NE(
      deployment_.failure()->message.find(
          "rank 1.0 has 4.00 GiB free with its context of 1.00 GiB up, and 19.00 GiB with one "
          "of 1.00 GiB were planned"),
      std::string::npos)
      << deployment_.failure()->message;
}

TEST_F(OnDevices, ALayoutThatWouldBeAnotherThenIsNotLoaded) {
  start();
  open(0, kGiB, 19 * kGiB);
  open(1, kGiB, 4 * kGiB);
  LaunchPlan other = on_devices();
  other.tp = 2;
  deployment_.replanned(other, kStart, out_);
  EXPECT_EQ(loads().size(), 2U);
  ASSERT_TRUE(deployment_.failure());
  EXPECT_NE(deployment_.failure()->message.find("tp 2 x dp 2"), std::string::npos);
}

// Without it the machine is another one, where other devices have the places of what was found.
TEST_F(OnDevices, OnceADeviceHasFailedNothingIsPlannedAgain) {
  start();
  open(0, kGiB, 4 * kGiB);
  EXPECT_EQ(loads().size(), 2U);
  break_device("GPU-1");
  EXPECT_EQ(count_plans(), 0U);
  ASSERT_EQ(loads().size(), 3U) << "what is short is found when it has loaded";
  EXPECT_EQ(loads().back().replica, 0);
  EXPECT_FALSE(loads().back().is_tentative);
}

TEST_F(OnDevices, AnAnswerOfBeforeADeviceFailedIsNotAwaitedAndASpareIsLoadedAsPlanned) {
  start();
  open(0, kGiB, 4 * kGiB);
  open(1, kGiB, 19 * kGiB);
  ASSERT_TRUE(deployment_.awaits_plan(questions_));
  const std::int64_t asked = questions_;
  break_device("GPU-1");
  EXPECT_FALSE(deployment_.awaits_plan(asked));
  ASSERT_EQ(loads().size(), 3U);
  EXPECT_EQ(loads().back().replica, 0);
  EXPECT_FALSE(loads().back().is_tentative);
  const ChildId lost{.replica = 1, .incarnation = deployment_.cohorts()[1].incarnation()};
  out_.clear();
  deployment_.child_exited(lost, {true, 9}, kStart, out_);
  Device spare;
  spare.uuid = "GPU-2";
  spare.memory_total = spare.memory_free = 20 * kGiB;
  deployment_.devices_found({std::vector<Device>{spare}, questions_}, kStart, out_);
  for (const Action& action : Actions(out_)) spawned(action);
  ASSERT_EQ(loads().size(), 1U);
  EXPECT_EQ(loads()[0].replica, 1);
  EXPECT_FALSE(loads()[0].is_tentative);
  EXPECT_EQ(deployment_.cohorts()[1].device_of(0), "GPU-2");
  EXPECT_EQ(deployment_.cohorts()[0].device_of(0), "GPU-0");
  EXPECT_EQ(count_plans(), 0U);
}

TEST_F(OnDevices, WhoWaitsForTheOthersIsNotBlamedForTheTime) {
  start();
  open(0, kGiB, 19 * kGiB);
  deployment_.tick(kStart + seconds(3600), out_);
  EXPECT_EQ(count_logged("replica 0"), 0U);
  const auto aborted = std::ranges::find_if(
      out_, [](const Action& action) { return std::holds_alternative<AbortSegment>(action); });
  ASSERT_NE(aborted, out_.end());
  EXPECT_EQ(std::get<AbortSegment>(*aborted).replica, 1);
}

TEST_F(OnDevices, AReplicaThatStartsAgainIsNotAskedAgain) {
  start();
  open(0, kGiB, 19 * kGiB);
  open(1, kGiB, 19 * kGiB);
  load(0, 10 * kGiB);
  load(1, 10 * kGiB);
  const ChildId first{.replica = 0, .incarnation = deployment_.cohorts()[0].incarnation()};
  deployment_.child_exited(first, {true, 9}, kStart, out_);
  out_.clear();
  deployment_.tick(kStart + seconds(2), out_);
  for (const Action& action : Actions(out_)) spawned(action);
  ASSERT_EQ(loads().size(), 1U);
  EXPECT_FALSE(loads()[0].is_tentative);
}

}  // namespace
}  // namespace plimsoll
