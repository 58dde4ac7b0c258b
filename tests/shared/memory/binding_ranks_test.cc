#include "shared/memory/binding_ranks.h"

#include <random>

#include <gtest/gtest.h>

#include "shared/memory/plan_problem.h"
#include "tests/support/model_specs.h"
#include "tests/support/plan_cases.h"
#include "tests/support/plan_chance.h"
#include "tests/support/plan_golden.h"

namespace plimsoll {
namespace {

// No two are alike, some are of the same size, and some have next to nothing free.
Machine unlike_devices(std::mt19937_64& random, std::int64_t count) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Machine machine = test_machine(256 * kGiB, 8);
  const Bytes size = between(20, 200) * kGiB;
  const Bytes spread = between(0, 2) * between(0, 4000) * kMiB + between(1, 64) * kKiB;
  for (std::int64_t i = 0; i < count; ++i) {
    Device device;
    device.name = "GPU";
    device.is_simulated = true;
    device.memory_total = size + between(0, 3) * spread;
    if (between(0, 1) == 1) device.cuda_total = device.memory_total - between(0, 900) * kMiB;
    device.memory_free = device.memory_total - between(0, 8) * between(0, 800) * kMiB;
    device.compute_major = static_cast<int>(between(8, 9));
    device.multiprocessors = static_cast<int>(66 * between(1, 2));
    if (between(0, 1) == 1) device.context = between(100, 900) * kMiB;
    machine.devices.push_back(device);
  }
  return machine;
}

struct Rule {
  const char* flag;
  double low, high;
  const char* unit;
};

TEST(BindingRanks, DecideWhatAllRanksDecide) {
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const ModelSpec models[] = {*golden_model("kimi-k2.5"), *golden_model("llama-70b"),
                              *golden_model("qwen3-235b")};
  const Rule rules[] = {{"", 0, 0, ""},
                        {"--mem-fraction-static=", 0.3, 0.99, ""},
                        {"--gpu-memory-utilization=", 0.3, 0.99, ""},
                        {"--kv-cache-bytes=", 0.5, 60, "GiB"},
                        {"--max-total-tokens=", 5000, 900'000, ""}};
  int fitted = 0;
  int fewer = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int64_t tp = std::int64_t{1} << static_cast<int>(between(0, 3.99));
    const auto dp = static_cast<std::int64_t>(between(1, 9));
    const Machine machine = unlike_devices(random, tp * dp);
    const Rule& rule = rules[static_cast<std::size_t>(between(0, 4.99))];
    std::vector<std::string> flags = {"--devices=simulated:80GiB", "--tp=" + std::to_string(tp),
                                      "--dp=" + std::to_string(dp),
                                      "--assume=weights=" + gib(between(2, 40))};
    if (rule.high > 1000) {
      flags.push_back(rule.flag + std::to_string(static_cast<int>(between(rule.low, rule.high))));
    } else if (rule.high > 0) {
      flags.push_back(rule.flag + std::to_string(between(rule.low, rule.high)).substr(0, 5) +
                      rule.unit);
    }
    if (between(0, 1) < 0.3) flags.push_back("--context-length=4096");
    if (between(0, 1) < 0.3) flags.push_back("--cuda-graph-max-bs=64");
    const ModelSpec& model = models[round % 3];
    const auto problem = make_problem(machine, model, test_options(flags).values, nullptr);
    ASSERT_TRUE(problem) << problem.error().message;
    const Fit few = decide_fit(problem->fit);
    const Fit all = decide_fit_of_all(problem->fit);
    SCOPED_TRACE(round);
    EXPECT_EQ(few.fits, all.fits);
    EXPECT_EQ(few.holds_one, all.holds_one);
    EXPECT_EQ(few.is_within, all.is_within);
    EXPECT_EQ(few.kv_blocks, all.kv_blocks);
    EXPECT_EQ(few.step.context_length, all.step.context_length);
    EXPECT_EQ(few.step.max_running_requests, all.step.max_running_requests);
    EXPECT_EQ(few.step.step_tokens_max, all.step.step_tokens_max);
    EXPECT_EQ(few.step.cuda_graph_max_bs, all.step.cuda_graph_max_bs);
    fitted += all.fits ? 1 : 0;
    fewer += binding_ranks(problem->fit).ranks.size() < problem->fit.ranks.size() ? 1 : 0;
  }
  EXPECT_GT(fitted, 60);
  EXPECT_LT(fitted, 290);
  EXPECT_GT(fewer, 100);
}

TEST(BindingRanks, OfAThousandUnlikeDevicesAFewAreLookedAt) {
  Machine machine = test_machine(256 * kGiB, 8);
  for (std::int64_t i = 0; i < 1024; ++i) {
    Device device;
    device.is_simulated = true;
    device.memory_total = 80 * kGiB - i * kMiB;
    device.memory_free = device.memory_total - (i * 37 % 1000) * kMiB;
    device.compute_major = 9;
    machine.devices.push_back(device);
  }
  const ModelSpec model = *golden_model("llama-70b");
  for (const char* rule : {"--kv-cache-bytes=1GiB", "--gpu-memory-utilization=0.9"}) {
    const OptionSet options = test_options(
        {"--devices=simulated:80GiB", "--tp=16", "--dp=64", "--assume=weights=9GiB", rule});
    const auto problem = make_problem(machine, model, options.values, nullptr);
    ASSERT_TRUE(problem) << problem.error().message;
    EXPECT_EQ(problem->fit.ranks.size(), 1024U);
    EXPECT_LE(binding_ranks(problem->fit).ranks.size(), 8U) << rule;
  }
}

TEST(BindingRanks, OnCpusAllRanksStay) {
  const ModelSpec model = make_llama_spec(smollm2_shape());
  const OptionSet options = test_options({"--tp=9"});
  const auto problem = make_problem(test_machine(64 * kGiB, 16), model, options.values, nullptr);
  ASSERT_TRUE(problem) << problem.error().message;
  EXPECT_EQ(binding_ranks(problem->fit).ranks.size(), 9U);
}

}  // namespace
}  // namespace plimsoll
