#include "daemon/planner.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tools/tiny_model/tiny_model.h"

namespace plimsoll {
namespace {

TEST(Planner, AModelThatIsMissingIsNotFound) {
  OptionSet options;
  options.values.model = "/nowhere/model.gguf";
  const Result<LaunchPlan> plan = make_launch_plan(options, {});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::not_found);
  EXPECT_NE(plan.error().message.find("/nowhere/model.gguf"), std::string::npos);
}

TEST(Planner, ThePlanOfTheDefaultModelNamesItAndCountsItsRanks) {
  SKIP_WITHOUT(default_model_path());
  OptionSet options;
  options.values.model = default_model_path().string();
  options.values.tp = 2;
  options.values.dp = 2;
  options.values.context_length = 512;
  options.values.max_running_requests = 2;
  const Result<LaunchPlan> plan = make_launch_plan(options, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->served_model_name, default_model_path().stem().string());
  EXPECT_EQ(plan->rank_bytes.size(), 4U);
  ASSERT_EQ(plan->weight_bytes.size(), 4U);
  EXPECT_GT(plan->weight_bytes[3], 0);
  EXPECT_LT(plan->weight_bytes[3], plan->rank_bytes[3]);
  EXPECT_EQ(plan->context_length, 512);
  EXPECT_GT(plan->kv_blocks, 0);
  EXPECT_FALSE(plan->refusal);
  EXPECT_FALSE(plan->environment.empty());
}

TEST(Planner, APlanThatDoesNotFitIsAnErrorOfItsOwnKind) {
  SKIP_WITHOUT(default_model_path());
  OptionSet options;
  options.values.model = default_model_path().string();
  options.values.device_memory = 16 * kMiB;
  const Result<LaunchPlan> plan = make_launch_plan(options, {});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(plan->refusal);
  EXPECT_EQ(plan->refusal->code, Code::does_not_fit);
  EXPECT_EQ(plan->plan_json.find("verdict")->as_string(), "refused");
}

TEST(Planner, ATokenizerThatTheRouterCannotReadIsRefused) {
  std::string bytes = make_tiny_model({}).value();
  const std::size_t name = bytes.find("gpt2", bytes.find("tokenizer.ggml.model"));
  ASSERT_NE(name, std::string::npos);
  bytes.replace(name, 4, "bert");
  const TempFolder folder;
  OptionSet options;
  options.values.model = (folder.path() / "bert.gguf").string();
  std::ofstream(options.values.model, std::ios::binary) << bytes;
  const Result<LaunchPlan> plan = make_launch_plan(options, {});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::invalid);
  EXPECT_NE(plan.error().message.find("tokenizer is 'bert'"), std::string::npos)
      << plan.error().message;
}

TEST(Planner, OnlyPrivateAndSharedPagesComeBackWhenAProcessEnds) {
  const TempFolder root;
  std::filesystem::create_directories(root.path() / "proc/42");
  std::ofstream(root.path() / "proc/42/smaps_rollup") << "00400000-7fff ---p 0 00:00 0 [rollup]\n"
                                                         "Rss:             4000 kB\n"
                                                         "Pss:             3000 kB\n"
                                                         "Pss_Anon:        1000 kB\n"
                                                         "Pss_File:        1500 kB\n"
                                                         "Pss_Shmem:        500 kB\n";
  EXPECT_EQ(releasable_bytes(42, root.path()), 1500 * kKiB);
  EXPECT_EQ(releasable_bytes(43, root.path()), 0);
}

OptionSet tiny_options(const TempFolder& folder) {
  OptionSet options;
  options.values.model = (folder.path() / "tiny.gguf").string();
  std::ofstream(options.values.model, std::ios::binary) << make_tiny_model({}).value();
  return options;
}

TEST(Planner, DevicesThatThisBuildCannotRunAreRefusedBeforeAnythingStarts) {
  const TempFolder folder;
  OptionSet options = tiny_options(folder);
  options.values.machine =
      (golden_path("").parent_path() / "../../configs/machines/8x-h200.json").string();
  const Result<LaunchPlan> plan = make_launch_plan(options, {});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::invalid);
  EXPECT_NE(plan.error().message.find("describes another machine"), std::string::npos)
      << plan.error().message;
  options.values.devices = "simulated";
  const Result<LaunchPlan> rehearsal = make_launch_plan(options, {});
  EXPECT_TRUE(rehearsal) << rehearsal.error().message;
}

TEST(Planner, WhatWouldNotFitOnAnEmptyMachineEitherIsNobodysFault) {
  const TempFolder folder;
  OptionSet options = tiny_options(folder);
  options.values.device_memory = kMiB;
  const Planned planned = plan_launch(options, {});
  ASSERT_TRUE(planned.plan) << planned.plan.error().message;
  ASSERT_TRUE(planned.plan->refusal);
  EXPECT_EQ(planned.plan->refusal->code, Code::does_not_fit);
  EXPECT_FALSE(planned.held);
  EXPECT_EQ(planned.options.values.device_memory, kMiB);
}

TEST(Planner, WhatRanksFoundOnTheirDevicesGoesBeforeWhatWasSaidOfThem) {
  const TempFolder folder;
  OptionSet options = tiny_options(folder);
  options.values.devices = "simulated:40GiB";
  options.values.tp = 2;
  const Result<LaunchPlan> first = make_launch_plan(options, {});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->simulated_memory, (std::vector<Bytes>{40 * kGiB, 40 * kGiB}));
  const DeviceFound found[] = {{0, 2 * kGiB, 38 * kGiB}, {1, kGiB, 30 * kGiB}};
  const Result<LaunchPlan> second = make_launch_plan(options, {}, {}, found);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_FALSE(second->refusal);
  EXPECT_EQ(second->memory.ranks[0].bytes(Term::context), 2 * kGiB);
  EXPECT_EQ(second->memory.ranks[0].budget, 40 * kGiB);
  EXPECT_EQ(second->memory.ranks[1].bytes(Term::context), kGiB);
  EXPECT_EQ(second->memory.ranks[1].budget, 31 * kGiB);
  EXPECT_EQ(second->memory.ranks[1].held_by_others, 9 * kGiB);
  EXPECT_EQ(second->simulated_memory, first->simulated_memory) << "the devices are as they were";
}

TEST(Planner, ASimulationNeedsSimulatedDevicesAndNoMistakes) {
  const TempFolder folder;
  OptionSet options = tiny_options(folder);
  options.values.simulation = (folder.path() / "simulation.json").string();
  std::ofstream(options.values.simulation) << R"({"costs": []})";
  const Result<LaunchPlan> on_cpu = make_launch_plan(options, {});
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().code, Code::invalid);
  EXPECT_NE(on_cpu.error().message.find("simulation"), std::string::npos);
  options.values.devices = "simulated:94GiB";
  std::ofstream(options.values.simulation) << R"({"costs": 1})";
  const Result<LaunchPlan> mistaken = make_launch_plan(options, {});
  ASSERT_FALSE(mistaken);
  EXPECT_EQ(mistaken.error().code, Code::invalid);
  EXPECT_NE(mistaken.error().message.find("simulation.json"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
