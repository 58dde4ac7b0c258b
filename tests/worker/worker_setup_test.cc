#include "worker/worker_setup.h"

#include <string>

#include <gtest/gtest.h>

#include "shared/options/option_parse.h"

namespace plimsoll {
namespace {

// Two replicas of two ranks.
MemoryPlan four_ranks() {
  MemoryPlan plan;
  plan.tp = 2;
  plan.dp = 2;
  for (std::int64_t replica = 0; replica < 2; ++replica) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      RankPlan ranked;
      ranked.replica = replica;
      ranked.rank = rank;
      ranked.shard.heads = {rank * 4, rank * 4 + 4};
      ranked.threads = 3;
      ranked.cpus = {static_cast<int>(rank)};
      plan.ranks.push_back(ranked);
    }
  }
  plan.decisions = {.context_length = 512,
                    .max_running_requests = 8,
                    .step_tokens_max = 128,
                    .logit_rows_max = 16,
                    .kv_blocks = 40,
                    .notes = {}};
  return plan;
}

Load load_of(const MemoryPlan& plan, const OptionSet& options = {}) {
  Load load;
  load.options = option_set_to_json(options);
  load.plan = memory_plan_to_json(plan);
  load.replica = 1;
  load.rank = 1;
  return load;
}

TEST(WorkerSetup, ATableOfCollectivesThatCannotBeReadIsNone) {
  Load load = load_of(four_ranks());
  EXPECT_FALSE(read_load(load)->collectives);
  load.collectives = table_to_json(table_of_one("shm", "one-shot"));
  EXPECT_EQ(read_load(load)->collectives, table_of_one("shm", "one-shot"));
  load.collectives.set("hash", "of another build");
  const auto launched = read_load(load);
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_FALSE(launched->collectives);
}

TEST(WorkerSetup, TakesItsOwnRankAndTheShardsOfItsReplica) {
  const auto launched = read_load(load_of(four_ranks()));
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_EQ(launched->plan.replica, 1);
  EXPECT_EQ(launched->plan.rank, 1);
  ASSERT_EQ(launched->shards.ranks.size(), 2U);
  EXPECT_EQ(launched->shards.ranks[0].heads, (Range{0, 4}));
  EXPECT_EQ(launched->limits.rows_max, 128);
  EXPECT_EQ(launched->running_requests_max, 8);
  EXPECT_EQ(launched->threads_of_all_ranks, 12);
  EXPECT_EQ(launched->backend.threads, 3);
  EXPECT_EQ(launched->backend.activations, Activations::int8);
  EXPECT_FALSE(launched->backend.path.has_value());
}

TEST(WorkerSetup, OptionsChooseTheBackend) {
  OptionSet options;
  options.values.cpu_path = "scalar";
  options.values.activations = "f32";
  const auto launched = read_load(load_of(four_ranks(), options));
  ASSERT_TRUE(launched) << launched.error().message;
  EXPECT_EQ(launched->backend.path, CpuPath::scalar);
  EXPECT_EQ(launched->backend.activations, Activations::f32);
}

TEST(WorkerSetup, APlanThatContradictsItselfIsRefused) {
  const auto refused = [](auto&& damage) {
    MemoryPlan plan = four_ranks();
    Load load = load_of(plan);
    damage(plan, load);
    load.plan = memory_plan_to_json(plan);
    const auto launched = read_load(load);
    return !launched && launched.error().code == Code::internal;
  };
  EXPECT_FALSE(refused([](MemoryPlan&, Load&) {}));
  EXPECT_TRUE(refused([](MemoryPlan&, Load& load) { load.rank = 2; }));
  EXPECT_TRUE(refused([](MemoryPlan&, Load& load) { load.replica = 2; }));
  EXPECT_TRUE(refused([](MemoryPlan&, Load& load) { load.rank = 0; }));  // without an endpoint
  EXPECT_TRUE(refused([](MemoryPlan& plan, Load&) { plan.decisions.max_running_requests = 17; }));
  EXPECT_TRUE(refused([](MemoryPlan& plan, Load&) { plan.decisions.kv_blocks = 0; }));
  EXPECT_TRUE(refused([](MemoryPlan& plan, Load&) { plan.ranks.erase(plan.ranks.begin() + 3); }));
}

TEST(WorkerSetup, DamagedMessagesAreErrorsNotCrashes) {
  Load load;
  load.options = Json("nonsense");
  EXPECT_FALSE(read_load(load));
  load.options = option_set_to_json({});
  load.plan = Json::array({1, 2});
  EXPECT_FALSE(read_load(load));
}

TEST(WorkerSetup, KnowsLogLevelsByName) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_EQ(parse_log_level("error"), LogLevel::error);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

}  // namespace
}  // namespace plimsoll
