#include "shared/memory/plan_problem.h"

#include <gtest/gtest.h>

#include "shared/base/json.h"
#include "shared/model/model_source.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_golden.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

Machine gpus(std::vector<Bytes> sizes) {
  Machine machine = test_machine(64 * kGiB);
  for (const Bytes size : sizes) {
    Device device;
    device.memory_total = device.memory_free = size;
    machine.devices.push_back(device);
  }
  return machine;
}

std::string mistake(const Machine& machine, const ModelSpec& model,
                    std::vector<std::string> flags) {
  const OptionSet options = test_options(std::move(flags));
  const Result<PlanProblem> problem = make_problem(machine, model, options.values, nullptr);
  EXPECT_FALSE(problem);
  return problem ? "" : problem.error().message;
}

TEST(PlanProblem, EqualRanksOnEqualDevicesAreOneCase) {
  const ModelSpec model = *golden_model("llama-70b");
  const Machine machine = gpus(std::vector<Bytes>(16, 80 * kGiB));
  const OptionSet options = test_options({"--tp=8", "--dp=2"});
  const Result<PlanProblem> problem = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(problem) << problem.error().message;
  EXPECT_EQ(problem->fit.ranks.size(), 1U);
  EXPECT_EQ(problem->case_of.size(), 16U);
}

TEST(PlanProblem, OfDevicesThatDifferInWhatIsFreeTheTightestDecides) {
  const ModelSpec model = *golden_model("llama-8b");
  Machine machine = gpus(std::vector<Bytes>(4, 24 * kGiB));
  machine.devices[2].memory_free = 16 * kGiB;
  const OptionSet options = test_options({"--tp=4"});
  const Result<PlanProblem> problem = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(problem);
  ASSERT_EQ(problem->fit.ranks.size(), 1U);
  EXPECT_EQ(problem->fit.ranks[0].index, 2);
  EXPECT_EQ(problem->fit.ranks[0].budget, 16 * kGiB);
  EXPECT_EQ(problem->device_budgets[3].limit, 24 * kGiB);
  EXPECT_LT(problem->fit.free_before_weights, 16 * kGiB);
}

TEST(PlanProblem, DevicesOfOtherKindsAreCasesOfTheirOwn) {
  const ModelSpec model = *golden_model("llama-8b");
  const Machine machine = gpus({16 * kGiB, 24 * kGiB, 16 * kGiB, 24 * kGiB});
  const OptionSet options = test_options({"--tp=4"});
  const Result<PlanProblem> problem = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->case_of, (std::vector<std::size_t>{0, 1, 0, 1}));
}

TEST(PlanProblem, OurKernelsHaveUnitsAndARingOnDevicesToo) {
  LlamaShape shape = smollm2_shape();
  shape.heads = shape.kv_heads = 8;
  shape.ffn = 4 * 960;  // in four: 960 columns each, or units of 256
  const ModelSpec model = make_llama_spec(shape);
  ASSERT_TRUE(model.can_be_loaded());
  const OptionSet options = test_options({"--tp=4"});
  Machine machine = gpus(std::vector<Bytes>(4, 24 * kGiB));
  const auto ours = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(ours) << ours.error().message;
  EXPECT_EQ(ours->shards.ranks, plan_shards(model, 4)->ranks);
  EXPECT_EQ(ours->shards.ranks[0].ffn.size(), 1024);
  const StepShape step = step_shape(ours->fit, 4096, 8);
  EXPECT_LT(step_blocks_max(ours->fit, step), 100'000'000);
  machine.name = "described";  // by others' servers
  const auto theirs = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(theirs) << theirs.error().message;
  EXPECT_EQ(theirs->shards.ranks[0].ffn.size(), 960);
  EXPECT_GT(step_blocks_max(theirs->fit, step), 100'000'000);
  for (Device& device : machine.devices) device.is_simulated = true;  // a rehearsal
  const auto rehearsed = make_problem(machine, model, options.values, nullptr);
  ASSERT_TRUE(rehearsed) << rehearsed.error().message;
  EXPECT_EQ(rehearsed->shards.ranks[0].ffn.size(), 960);
  EXPECT_EQ(step_blocks_max(rehearsed->fit, step), step_blocks_max(ours->fit, step));
}

TEST(PlanProblem, ADraftModelAddsWeightsAndKv) {
  const ModelSpec model = *golden_model("llama-70b");
  const ModelSpec draft = make_llama_spec(smollm2_shape());
  const Machine machine = gpus({80 * kGiB, 80 * kGiB});
  const OptionSet options = test_options({"--tp=2"});
  const auto alone = make_problem(machine, model, options.values, nullptr);
  const auto both = make_problem(machine, model, options.values, &draft);
  ASSERT_TRUE(alone && both);
  EXPECT_GT(both->fit.ranks[0].draft, 0);
  EXPECT_GT(both->fit.ranks[0].kv_token_bytes, alone->fit.ranks[0].kv_token_bytes);
}

TEST(PlanProblem, NothingIsNoFigureOfWhatEveryPlanHas) {
  const ModelSpec small = make_llama_spec(smollm2_shape());
  for (const char* term : {"kv-token", "total", "free"}) {
    const std::string text =
        mistake(gpus({80 * kGiB}), small, {std::string("--assume=") + term + "=0B"});
    EXPECT_NE(text.find(std::string("assume: ") + term + " is 0"), std::string::npos) << text;
  }
  EXPECT_NE(mistake(test_machine(4 * kGiB), small, {"--assume=kv-token=0B"}).find("is 0"),
            std::string::npos);
}

TEST(PlanProblem, RefusesWhatContradictsTheMachine) {
  const ModelSpec large = *golden_model("llama-8b");
  const ModelSpec experts = *golden_model("qwen3-235b");
  const ModelSpec small = make_llama_spec(smollm2_shape());
  const Machine cpu = test_machine(4 * kGiB);
  EXPECT_NE(mistake(cpu, small, {"--kv-cache-dtype=bf16"}).find("f16 or int8"), std::string::npos);
  EXPECT_NE(mistake(cpu, small, {"--kv-cache-dtype=fp8"}).find("not fp8"), std::string::npos);
  EXPECT_NE(mistake(cpu, small, {"--ep=2"}).find("ep"), std::string::npos);
  EXPECT_NE(mistake(cpu, small, {"--draft-model=/x.gguf"}).find("draft"), std::string::npos);
  EXPECT_NE(mistake(cpu, small, {"--cuda-graph-max-bs=8"}).find("graphs"), std::string::npos);
  EXPECT_NE(mistake(cpu, large, {}).find("GGUF"), std::string::npos);
  EXPECT_NE(mistake(gpus({80 * kGiB}), large, {"--tp=2"}).find("2 ranks"), std::string::npos);
  EXPECT_NE(mistake(gpus({80 * kGiB, 80 * kGiB}), experts, {"--tp=2", "--ep=3"})
                .find("3 groups of experts and tp 2"),
            std::string::npos);
  EXPECT_NE(mistake(gpus({80 * kGiB, 80 * kGiB}), large, {"--tp=2", "--ep=2"}).find("has none"),
            std::string::npos);
  EXPECT_NE(mistake(cpu, small, {"--mem-fraction-static=0.5", "--gpu-memory-utilization=0.5"})
                .find("give one"),
            std::string::npos);
}

TEST(PlanProblem, ExpertsOverGroupsOfRanksAllowMoreRanks) {
  // Of its config, which says that weights come in blocks of 128 columns.
  const auto golden = parse_json(read_test_file(golden_path("models/deepseek-r1.json")));
  const ModelSpec model = *spec_of_config(*golden->find("config"), "deepseek-r1");
  Machine machine = test_machine(256 * kGiB, 8);
  Device device;
  device.is_simulated = true;
  device.memory_total = device.memory_free = 141 * kGiB;
  device.compute_major = 9;
  machine.devices.assign(64, device);
  const auto made = [&](std::vector<std::string> flags) {
    flags.push_back("--devices=simulated:141GiB");
    return make_problem(machine, model, test_options(std::move(flags)).values, nullptr);
  };
  EXPECT_TRUE(made({"--tp=32", "--ep=2"}));
  const auto refused = made({"--tp=64", "--ep=2"});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("tp can be 1 to 32"), std::string::npos)
      << refused.error().message;
  const auto without = made({"--tp=32"});
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("tp can be 1 to 16"), std::string::npos)
      << without.error().message;
}

}  // namespace
}  // namespace plimsoll
