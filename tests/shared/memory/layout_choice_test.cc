#include "shared/memory/layout_choice.h"

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/machine/machine_file.h"
#include "shared/memory/memory_plan.h"
#include "shared/model/model_source.h"
#include "tests/support/model_specs.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Machine cpus(const std::string& memory, int cpu_count, int nodes) {
  return *parse_machine(R"({"host": {"memory": ")" + memory + R"(", "cpus": )" +
                        std::to_string(cpu_count) + R"(, "numa_nodes": )" + std::to_string(nodes) +
                        "}}");
}

ModelSpec small_model() {
  return make_llama_spec({.layers = 4,
                          .hidden = 256,
                          .ffn = 512,
                          .heads = 4,
                          .kv_heads = 4,
                          .head_dim = 64,
                          .vocab = 4096,
                          .context_length = 2048});
}

OptionSet open_layout(std::int64_t tp = 0, std::int64_t dp = 0) {
  OptionSet options;
  options.values.tp = tp;
  options.values.dp = dp;
  return options;
}

LayoutChoice chosen(const Machine& machine, const OptionSet& options,
                    const std::vector<LayoutSpeed>& measured = {}) {
  return *choose_layout(machine, small_model(), options, nullptr, measured);
}

TEST(LayoutChoice, WhatWasGivenStays) {
  const LayoutChoice choice = chosen(cpus("64GiB", 8, 2), open_layout(3, 2));
  EXPECT_EQ(choice.tp, 3);
  EXPECT_EQ(choice.dp, 2);
  EXPECT_EQ(choice.why, "") << "nothing was left to us";
}

TEST(LayoutChoice, OneMemoryNodeIsOneRank) {
  const LayoutChoice choice = chosen(cpus("16GiB", 2, 1), open_layout());
  EXPECT_EQ(choice.tp, 1);
  EXPECT_EQ(choice.dp, 1);
  EXPECT_EQ(choice.why,
            "tp 1 x dp 1 (both are auto): one rank with all threads: the machine has one memory "
            "node");
}

TEST(LayoutChoice, SeveralNodesGetAReplicaEach) {
  const LayoutChoice choice = chosen(cpus("64GiB", 8, 2), open_layout());
  EXPECT_EQ(choice.tp, 1);
  EXPECT_EQ(choice.dp, 2);
}

TEST(LayoutChoice, ReplicasThatWouldHoldAShorterContextAreRanks) {
  OptionSet options = open_layout();
  options.values.device_memory.reset();
  options.values.context_length = 2048;
  options.values.max_running_requests = 1;
  // Memory for one replica and a half.
  const MemoryPlan one =
      *plan_memory(cpus("64GiB", 8, 2), small_model(), with_layout(options, {.tp = 1, .dp = 1}));
  Machine machine = cpus("64GiB", 8, 2);
  const MemoryPlan ranks =
      *plan_memory(machine, small_model(), with_layout(options, {.tp = 2, .dp = 1}));
  const MemoryPlan replicas =
      *plan_memory(machine, small_model(), with_layout(options, {.tp = 1, .dp = 2}));
  const auto whole = [](const MemoryPlan& plan) {
    Bytes sum = 0;
    for (const RankPlan& rank : plan.ranks) sum += rank.total();
    return sum;
  };
  ASSERT_LT(whole(ranks), whole(replicas));
  // Of what is available half is for us.
  machine.memory_available = whole(ranks) + whole(replicas);
  ASSERT_FALSE(one.refusal);
  const LayoutChoice choice = chosen(machine, options);
  EXPECT_EQ(choice.tp, 2) << choice.why;
  EXPECT_EQ(choice.dp, 1);
}

TEST(LayoutChoice, OnlyWhatIsOpenIsChosen) {
  EXPECT_EQ(chosen(cpus("64GiB", 8, 2), open_layout(2, 0)).tp, 2);
  EXPECT_EQ(chosen(cpus("64GiB", 8, 2), open_layout(0, 1)).tp, 2) << "ranks over the nodes";
  EXPECT_EQ(chosen(cpus("64GiB", 8, 2), open_layout(0, 3)).dp, 3);
}

const std::vector<LayoutSpeed> kMeasured = {{1, 1, 16, 400, "generation 3"},
                                            {1, 2, 16, 520, "generation 4"}};

TEST(LayoutChoice, AClearlyFasterMeasuredLayoutGoesFirst) {
  const LayoutChoice choice = chosen(cpus("16GiB", 2, 1), open_layout(), kMeasured);
  EXPECT_EQ(choice.dp, 2);
  EXPECT_EQ(choice.why,
            "tp 1 x dp 2 (both are auto): measured 520 tokens/s with 16 requests (generation 4), "
            "tp 1 x dp 1 400 (generation 3)");
}

TEST(LayoutChoice, SpeedsOfOtherLoadsAreNotCompared) {
  std::vector<LayoutSpeed> measured = kMeasured;
  measured[0].requests = 1;
  EXPECT_EQ(chosen(cpus("16GiB", 2, 1), open_layout(), measured).dp, 1);
}

TEST(LayoutChoice, ASmallDifferenceDecidesNothing) {
  std::vector<LayoutSpeed> measured = kMeasured;
  measured[1].tokens_per_second = 430;
  EXPECT_EQ(chosen(cpus("16GiB", 2, 1), open_layout(), measured).dp, 1);
}

TEST(LayoutChoice, OfALayoutTheFastestLaunchCounts) {
  std::vector<LayoutSpeed> measured = kMeasured;
  measured.push_back({1, 1, 17, 600, "generation 5"});
  EXPECT_EQ(chosen(cpus("16GiB", 2, 1), open_layout(), measured).dp, 1);
}

TEST(LayoutChoice, AMeasuredLayoutThatWasNotAskedForCountsNothing) {
  EXPECT_EQ(chosen(cpus("16GiB", 2, 1), open_layout(0, 1), kMeasured).dp, 1);
}

TEST(LayoutChoice, GpusGetAsFewRanksAsHoldTheModel) {
  const auto on = [](const char* machine, const char* model) {
    const Machine gpus =
        *read_machine_file(golden_path("").parent_path() / "../../configs/machines" /
                           (std::string(machine) + ".json"));
    const auto file =
        parse_json(read_test_file(golden_path("models/" + std::string(model) + ".json")));
    const ModelSpec spec = *spec_of_config(*file->find("config"), model);
    return *choose_layout(gpus, spec, open_layout(), nullptr, {});
  };
  const LayoutChoice small = on("8x-h100", "llama-3.1-8b");
  EXPECT_EQ(small.tp, 1);
  EXPECT_EQ(small.dp, 8);
  const LayoutChoice large = on("8x-rtx-pro-6000", "kimi-k2.5");
  EXPECT_EQ(large.tp, 8);
  EXPECT_EQ(large.dp, 1);
}

}  // namespace
}  // namespace plimsoll
